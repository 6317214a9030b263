# Each target does its own set-up: a virtual environment in .venv, the pinned packages, then the work.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint torture clean

demo: .venv/demo-installed
	$(BIN)/fedbandit demo

test: lint
	$(BIN)/python -m pytest

lint: .venv/dev-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

torture: .venv/dev-installed
	$(BIN)/python -m pytest -m torture

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo-installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[demo]'
	touch $@

.venv/dev-installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf .venv out
	find src -name '*.nb[ci]' -delete
