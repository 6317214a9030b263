"""Change one thing at a time in what guarantees rest on, and see whether a test notices.

    python tools/mutants.py --sample 100 --seed 0   # or --all; --only plan.py; --jobs 2; --log outcomes.jsonl

A mutant is one changed operator, comparison, number, branch or function (see `_changes`) in one of the files of
`TESTS`, in a temporary copy of the source. The tests named there run on it until one fails, those that killed the most
mutants of the file first. A test file that fails must pass on the source as it is, or its verdict would mean nothing:
that is looked at once, when it first fails. Survivors are listed with their diff; those of `tools/survivors.txt` are
known, and why they live stands there. Mutants that take too long are counted apart: no test has failed on them. With
`--log`, outcomes are written down one by one and a run goes on where the last one stopped. Not part of the tests: a
whole run takes hours.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedbandit"
KNOWN = Path(__file__).with_name("survivors.txt")
SLOW = (  # to load: once, before processes are forked
    *("pytest", "numpy", "scipy.stats", "scipy.optimize", "scipy.signal", "scipy.integrate", "numba", "polars"),
    *("hypothesis.strategies", "dp_accounting", "opendp.prelude", "cryptography.hazmat.primitives.hpke"),
)
LIMIT = 400  # seconds of processor time per mutant, several times what its tests take on the source as it is
PATIENCE = 3600  # seconds of waiting, for a mutant that sleeps
SURVIVED, UNUSABLE, KILLED = 0, 9, 10  # exit codes of a process that runs tests; KILLED + i: the i-th test file failed
PROMISES = (
    "protocol/test_proofs",
    "protocol/test_answers",
    "protocol/test_late_rewards",
    "privacy/test_grid",
    "protocol/test_guarantee",
)
MESSAGES = ("protocol/test_trust", "protocol/test_adversaries", "protocol/test_composition", "protocol/test_protocols")
MATRICES = ("protocol/test_mechanisms", "protocol/test_late_rewards", "protocol/test_optimal")
ALL_TRUSTS = (*MESSAGES, "protocol/test_secure_sum", "protocol/test_vector_sum", "protocol/test_independent")
LIVE = (
    "federation/silo/test_silo",
    "federation/exact/test_live_noise",
    "federation/silo/test_norms",
    "federation/silo/test_time",
    "federation/syncs/test_agents",
)
TESTS: dict[str, tuple[str, ...]] = {  # by folder or file, the longest that fits: the quick and near ones first
    "privacy/accounting.py": ("privacy/test_accounting", *PROMISES, "privacy/test_amplification", "test_plan"),
    "privacy/amplification.py": ("privacy/test_amplification", *PROMISES, "test_plan"),
    "privacy/budget.py": ("test_plan", *PROMISES),
    "privacy/grid.py": PROMISES,
    "privacy/ledger.py": ("privacy/test_ledger", "test_plan", "protocol/test_late_rewards", *LIVE),
    "privacy/spending.py": ("privacy/test_ledger", "protocol/test_late_rewards", "test_plan", *LIVE),
    "privacy/noise.py": ("privacy/test_noise", *ALL_TRUSTS),
    "privacy/rounding.py": ("privacy/test_noise", "protocol/test_vector_sum"),
    "privacy/sensitivity.py": ("privacy/test_sensitivity", *PROMISES, "test_plan", "protocol/test_independent"),
    "protocol/guarantee.py": (*PROMISES, "test_plan", "privacy/test_sensitivity", "protocol/test_independent"),
    "protocol/calibration.py": (*PROMISES, "test_plan", "protocol/test_trust", "protocol/test_independent"),
    "protocol/trust.py": ("protocol/test_trust", "test_plan"),
    "protocol/encoder.py": (*MATRICES, *ALL_TRUSTS, *PROMISES),
    "protocol/mechanisms": MATRICES,
    "protocol/determinant.py": ("protocol/test_determinant", "protocol/test_guarantee"),
    "protocol/adversaries.py": ("protocol/test_adversaries",),
    "protocol/trusts": (*PROMISES, *ALL_TRUSTS, "test_plan"),
    "protocol": (*ALL_TRUSTS, "test_plan"),
    "plan.py": (
        "test_plan",
        *PROMISES,
        "protocol/test_determinant",
        "protocol/test_independent",
        "privacy/test_ledger",
    ),
    "federation/exact/exact_noise.py": LIVE,
    "federation/silo/releasing.py": LIVE,
    "federation/silo/ticker.py": LIVE,
    "federation/silo/outgoing.py": (*LIVE, "protocol/test_protocols"),
    "federation/silo/book.py": (*LIVE, "privacy/test_ledger"),
}

# -- mutants ----------------------------------------------------------------------------------------------------------

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
}
SWAPPED = {"min": "max", "max": "min", "any": "all", "all": "any", "floor": "ceil", "ceil": "floor"}
DROPPED = {"sqrt", "abs", "rint"}  # f(x) becomes x
SKIPPED = {"annotation", "returns", "decorator_list", "format_spec"}


class Mutant(NamedTuple):
    """One changed file."""

    path: Path
    line: int
    source: str
    diff: str

    @property
    def name(self) -> str:
        """The file and what changed, on one line: known survivors are found by it wherever they move."""
        changed = [line for line in self.diff.splitlines() if line[:1] in "+-"]
        return f"{self.path.relative_to(PACKAGE)}: " + " -> ".join(line[1:].strip() for line in changed)


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its text."""
    tree = ast.parse(path.read_text())
    plain = ast.unparse(tree)
    for number, (line, _) in enumerate(_places(tree)):
        changed = copy.deepcopy(tree)
        node, change = list(_sites(changed))[number]
        change(node)
        source = ast.unparse(ast.fix_missing_locations(changed))
        difference = difflib.unified_diff(plain.splitlines(), source.splitlines(), lineterm="", n=0)
        diff = "\n".join(list(difference)[3:])
        if diff:
            yield Mutant(path, line, source, diff)


def _places(tree: ast.Module) -> Iterator[tuple[int, ast.AST]]:
    """The line of the statement around each site: lines inside f-strings are not to be trusted."""
    for node, _ in _sites(tree):
        yield node.statement_line, node


def _sites(tree: ast.Module):  # type: ignore[no-untyped-def]
    """Each node that can be changed, with what to do to it."""
    for node in _walk(tree, 1):
        for change in _changes(node):
            yield node, change


def _walk(node: ast.AST, line: int) -> Iterator[ast.AST]:
    """Nodes in the order of the text, without types, decorators, `__all__` and declarations of strings."""
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
        return
    line = node.lineno if isinstance(node, ast.stmt) else line
    node.statement_line = line  # type: ignore[attr-defined]
    yield node
    for field, value in ast.iter_fields(node):
        if field not in SKIPPED:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, line)


def _changes(node: ast.AST):  # type: ignore[no-untyped-def]
    """What can be done to one node, each as a function that does it."""
    if isinstance(node, ast.Compare):
        for i, operator in enumerate(node.ops):
            if type(operator) in COMPARISONS:
                yield lambda n, i=i: n.ops.__setitem__(i, COMPARISONS[type(n.ops[i])]())
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_text(node):
        yield lambda n: setattr(n, "op", OPERATORS[type(n.op)]())
    if isinstance(node, ast.BoolOp):
        yield lambda n: setattr(n, "op", ast.Or() if isinstance(n.op, ast.And) else ast.And())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield lambda n: setattr(n, "op", ast.UAdd()) if isinstance(n.op, ast.USub) else _become(n, n.operand)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield lambda n: setattr(n, "value", _other(n.value))
    if isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare):
        yield lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    if isinstance(node, ast.If | ast.IfExp) and _is_ordering(node.test):
        yield lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    if isinstance(node, ast.Call):
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        if name in SWAPPED and isinstance(function, ast.Name):
            yield lambda n: setattr(n.func, "id", SWAPPED[n.func.id])
        elif name in SWAPPED:
            yield lambda n: setattr(n.func, "attr", SWAPPED[n.func.attr])
        if name in DROPPED and len(node.args) == 1:
            yield lambda n: _become(n, n.args[0])


def _is_ordering(node: ast.expr) -> bool:
    """A comparison whose mutant above moves the edge alone."""
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_text(node: ast.BinOp) -> bool:
    """Strings that are added, and unions of types."""
    return any(isinstance(side, ast.JoinedStr) or _is_string(side) for side in (node.left, node.right))


def _is_string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _other(value: float | bool) -> float | bool:
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else 1.25 * value if value else 1.0


def _become(node: ast.AST, other: ast.AST) -> None:
    """Turn a node into another one, in place."""
    node.__class__, node.__dict__ = other.__class__, other.__dict__


# -- running ----------------------------------------------------------------------------------------------------------


def tests_of(path: Path) -> tuple[str, ...]:
    """The tests that run on mutants of a file."""
    name = path.relative_to(PACKAGE).as_posix()
    best = max((known for known in TESTS if name == known or name.startswith(f"{known}/")), key=len)
    return tuple(f"tests/{test}.py" for test in TESTS[best])


class Outcome(NamedTuple):
    """How a mutant fared: "killed", "timed out" or "survived", and the test file that killed it."""

    how: str
    by: str = ""


class Runner:
    """Runs tests on changed copies of the source, one per job."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._copies: Queue[Path] = Queue()
        for job in range(jobs):
            self._copies.put(Path(shutil.copytree(ROOT / "src", folder / f"copy{job}", ignore=_compiled)))
        self._stamp = int(time.time())
        self._kills: Counter[tuple[Path, str]] = Counter()
        self._sound: set[str] = set()  # test files that pass on the source as it is

    def fare(self, numbered: tuple[int, Mutant]) -> Outcome:
        """How a mutant fares."""
        number, mutant = numbered
        tests = tuple(sorted(tests_of(mutant.path), key=lambda test: -self._kills[mutant.path, test]))
        code = self._code(mutant, tests, number)
        if code in (None, -signal.SIGXCPU):
            return Outcome("timed out")
        if code == SURVIVED:
            return Outcome("survived")
        if code == UNUSABLE:
            raise RuntimeError(f"pytest could not run the tests of {mutant.path}")
        assert code is not None
        by = tests[code - KILLED] if code >= KILLED else "a crash"
        self._check(by, tests)
        self._kills[mutant.path, by] += 1
        return Outcome("killed", by)

    def _check(self, by: str, tests: tuple[str, ...]) -> None:
        """The test file that failed, or all of them after a crash, must pass on the source as it is."""
        for test in (by,) if by in tests else tests:
            if test not in self._sound and self._code(None, (test,)) != SURVIVED:
                raise RuntimeError(f"{test} fails on the source as it is: no mutant can be judged by it")
            self._sound.add(test)

    def _code(self, mutant: Mutant | None, tests: tuple[str, ...], number: int = 0) -> int | None:
        """The exit code of the tests on a copy with this change, or with none; None if they took too long."""
        copied = self._copies.get()
        try:
            if mutant is None:
                return _exit_code(copied, tests)
            target = copied / mutant.path.relative_to(ROOT / "src")
            original, times = target.read_text(), target.stat()
            try:
                target.write_text(mutant.source)
                stamp = self._stamp + number  # a time of its own, or an older compiled file would be taken for it
                os.utime(target, (stamp, stamp))
                return _exit_code(copied, tests)
            finally:
                target.write_text(original)
                os.utime(target, (times.st_atime, times.st_mtime))
        finally:
            self._copies.put(copied)


def _exit_code(copied: Path, tests: tuple[str, ...]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=_run, args=(str(copied), tests))
    process.start()
    process.join(PATIENCE)
    if not process.is_alive():
        return process.exitcode
    process.kill()
    process.join()
    return None


def _run(source: str, tests: tuple[str, ...]) -> None:
    """In a process of its own: the tests, against this copy of the source, until one fails."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source
    sys.path[:0] = [source, str(ROOT)]
    import pytest

    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts="]
    for number, test in enumerate(tests):  # file by file: most die in the first
        code = pytest.main([*arguments, test])
        if code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):  # the latter: it cannot be imported
            os._exit(KILLED + number)
        if code != pytest.ExitCode.OK:
            os._exit(UNUSABLE)
    os._exit(SURVIVED)


def main() -> None:
    """Mutants of the files asked for, run, and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="so many mutants, drawn at random")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a folder or file of src/fedbandit; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--log", type=Path, help="write outcomes here; mutants that stand there already are not run again"
    )
    parser.add_argument("--list", action="store_true", help="say which mutants would run, and stop")
    options = parser.parse_args()
    everything = [mutant for path in _files(options.only) for mutant in mutants(path)]
    drawn = (
        everything
        if options.all
        else random.Random(options.seed).sample(everything, min(options.sample, len(everything)))
    )
    known = {line.split("  # ")[0].strip() for line in KNOWN.read_text().splitlines() if not line.startswith("#")}
    unknown = [mutant for mutant in drawn if mutant.name not in known]
    done = _logged(options.log)
    chosen = [mutant for mutant in unknown if mutant.name not in done]
    print(
        f"{len(everything)} mutants, {len(drawn)} drawn, {len(drawn) - len(unknown)} of them known to survive, "
        f"{len(unknown) - len(chosen)} run before"
    )
    if options.list:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return
    counts = Counter(outcome.how for outcome in _outcomes(chosen, options.jobs, options.log))
    print(f"\nof {len(chosen)}: " + ", ".join(f"{number} {how}" for how, number in sorted(counts.items())))
    sys.exit(1 if counts["survived"] else 0)


def _logged(log: Path | None) -> set[str]:
    """Mutants whose outcome is written down."""
    if log is None or not log.exists():
        return set()
    return {json.loads(line)["mutant"] for line in log.read_text().splitlines()}


def _files(only: list[str] | None) -> list[Path]:
    wanted = [PACKAGE / name for name in (only or TESTS)]
    found = {path for one in wanted for path in ([one] if one.suffix else one.rglob("*.py"))}
    return sorted((path for path in found if path.name != "__init__.py"), key=lambda path: _rank(path, only or []))


def _rank(path: Path, only: list[str]) -> tuple[int, Path]:
    """In the order in which they were asked for."""
    name = path.relative_to(PACKAGE).as_posix()
    return next((place for place, one in enumerate(only) if name.startswith(one)), 0), path


def _outcomes(chosen: list[Mutant], jobs: int, log: Path | None) -> list[Outcome]:
    """How each fared; survivors are printed as they are found."""
    for module in SLOW:
        __import__(module)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        runner = Runner(Path(folder), jobs)
        outcomes = []
        for mutant, outcome in zip(chosen, pool.map(runner.fare, enumerate(chosen)), strict=True):
            outcomes.append(outcome)
            print(".", end="", flush=True)
            if outcome.how != "killed":
                where = mutant.path.relative_to(ROOT)
                print(f"\n{outcome.how}: {where}:{mutant.line}\n{mutant.diff}\n  {mutant.name}", flush=True)
            if log is not None:
                with log.open("a") as lines:
                    lines.write(json.dumps({"mutant": mutant.name, **outcome._asdict()}) + "\n")
        return outcomes


def _compiled(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]


if __name__ == "__main__":
    main()
