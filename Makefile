# Each target does its own set-up: a virtual environment in .venv, the pinned packages, then the work.
PYTHON ?= python3
BIN := .venv/bin
VERSIONS ?= 3.11 3.12 3.13
PATIENT := -o faulthandler_timeout=3600 -o faulthandler_exit_on_timeout=true

.PHONY: demo test lint docs torture gallery coverage mutants matrix browser clean

demo: .venv/demo-installed
	$(BIN)/fedbandit demo

test: lint
	$(BIN)/python -m pytest

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The site, from pages, docstrings and commands, into out/site/VERSION. Warnings are errors; nothing is fetched.
docs: .venv/docs-installed
	$(BIN)/python docs/_ext/package_diagram.py --check
	$(BIN)/python tools/site.py

# First what runs real processes against the clock, on a machine that does nothing else, then the torture suite, which
# keeps every core busy and ends with its table. The longest tests take a hundred times as long as others, so tests are
# shared out one by one. If a test hangs, only that test fails.
torture: .venv/dev-installed
	$(BIN)/python -m pytest tests -m 'torture and not fire' -n 2 --dist worksteal $(PATIENT); failed=$$?; \
	$(BIN)/python -m pytest tests -m fire --full --dist worksteal $(PATIENT) && exit $$failed

# Every panel of docs/gallery, drawn again at the paper's 25 runs and compared to the digit. Takes most of an hour;
# panels on real data need the folder ../shared/data.
gallery: .venv/dev-installed
	$(BIN)/python -m pytest -n 0 tests/paper/figures/test_panels.py -m gallery

# Branch coverage of the parts that guarantees and rewards rest on; fails below 95 %.
coverage: .venv/dev-installed
	$(BIN)/python -m pytest tests/protocol tests/privacy tests/federation tests/demo tests/web tests/cli tests/test_contributing.py \
	    --cov=fedbandit.protocol --cov=fedbandit.privacy --cov=fedbandit.federation --cov-branch --cov-report=term \
	    --cov-fail-under=95

# Changes one thing at a time in what guarantees rest on; lists what no test notices (SAMPLE=100, SEED=0).
mutants: .venv/dev-installed
	$(BIN)/python tools/mutants.py --sample $(or $(SAMPLE),100) --seed $(or $(SEED),0)

# The pages in a real browser, and the documentation's pictures of them. Needs Chromium (apt-get install chromium).
browser: .venv/dev-installed
	$(BIN)/pip install --quiet -c constraints.txt -e '.[browser]'
	FEDBANDIT_SCREENSHOTS=docs/figures $(BIN)/python -m pytest -n 0 tests/web/test_planner_in_browser.py \
	    tests/web/test_parties_in_browser.py

# The tests under every Python that is installed here (pythonX.Y), each in an environment of its own.
matrix:
	for version in $(VERSIONS); do \
	    python$$version --version > /dev/null 2>&1 || { echo "python$$version: not installed"; continue; }; \
	    python$$version -m venv .venv-$$version && .venv-$$version/bin/pip install --quiet -c constraints.txt -e '.[dev]' \
	    && .venv-$$version/bin/python -m pytest || exit 1; \
	done

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo-installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	touch $@

.venv/docs-installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo,docs]'
	touch $@

.venv/dev-installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .venv-* out
	find src -name '*.nb[ci]' -delete
