"""Change one thing at a time in the code that guarantees rest on, and see whether a test notices.

    python tools/mutants.py --sample 100 --seed 0   # or --all; --only plan.py; --jobs 2; --fresh; --log outcomes.jsonl
    python tools/mutants.py --figures   # what is known so far, file by file

A mutant is one changed operator, comparison, number, branch or function (see `_changes`) in one of `FILES`. The tests
of `SUITE` that run the changed line are run on it until one fails (`mutant_runs`). Survivors are listed with their
diff. `tools/survivors.txt` lists the known ones, with the reason why they live. Mutants that take too long are counted
separately, because no test has failed on them.

`tools/killed.txt` records the mutants that are decided, by a digest of the file's name and of the function, before and
after the change (`Mutant.digest`). A mutant in it is not run again until its function changes, so a run continues where
the last one stopped; a mutant that survived is run again. The digest does not notice a test that was removed or a
callee that has changed: `--fresh` runs everything that was drawn, with a fresh trace of the tests.

With `--quick` every mutant gets only a few seconds of tests, the most promising ones: use it to look for survivors
while you write tests. `--log` says which test killed which mutant. This is not part of the package's tests.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import math
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from mutant_runs import PACKAGE, ROOT, Forks, Fresh, Lines, Mutant, Outcome, load, trace

KNOWN = Path(__file__).with_name("survivors.txt")
DECIDED = Path(__file__).with_name("killed.txt")
HEADER = "# Mutants that a test has killed, by digest; written by tools/mutants.py, which says how.\n"
TRACE = ROOT / "out" / "mutants.json"  # which tests run which line
DIGITS = 12  # of a digest
STAGES = (3.0, 12.0, math.inf)  # seconds of tests, at first and for mutants that live on: most need only a few
QUICK = STAGES[-2]
COLUMNS = ("mutants", "killed", "timed out", "listed", "open")
FILES = (
    "plan.py",
    "plan_checks.py",
    "plan_data.py",
    "privacy",
    "protocol",
    "federation/exact",
    "federation/silo/releasing.py",
    "federation/silo/ticker.py",
    "federation/silo/outgoing.py",
    "federation/silo/book.py",
    "federation/silo/decisions/apart.py",
    "federation/silo/decisions/counter.py",
    "federation/store/rewards.py",
    "bandit/prior.py",
    "schedule.py",
)
SUITE = (
    "tests/test_html.py",
    "tests/test_plan.py",
    "tests/test_plan_over_time.py",
    "tests/test_schedule.py",
    "tests/test_presets.py",
    "tests/test_roots.py",
    "tests/bandit/test_prior.py",
    "tests/privacy",
    "tests/protocol",
    "tests/federation/exact",
    "tests/federation/silo/decisions/test_counter.py",
    "tests/federation/silo/test_asking.py",
    "tests/federation/silo/test_book.py",
    "tests/federation/silo/test_coming_back.py",
    "tests/federation/silo/test_drawing.py",
    "tests/federation/silo/test_endless.py",
    "tests/federation/silo/test_norms.py",
    "tests/federation/silo/test_opting_out.py",
    "tests/federation/silo/test_outgoing.py",
    "tests/federation/silo/test_personal.py",
    "tests/federation/silo/test_release_time.py",
    "tests/federation/silo/test_releasing.py",
    "tests/federation/silo/test_silo.py",
    "tests/federation/silo/test_ticker.py",
    "tests/federation/silo/test_time.py",
    "tests/federation/setup/test_editions_on_their_way.py",
    "tests/federation/store/test_own_sums.py",
    "tests/federation/store/test_pruning.py",
    "tests/federation/store/test_store.py",
    "tests/federation/syncs/test_agents.py",
    "tests/audit/test_certificate.py",
    "tests/audit/test_worlds.py",
    "tests/simulator/test_terms.py",
)

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


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in the order of its text."""
    tree = ast.parse(path.read_text())
    plain = ast.unparse(tree)
    met: Counter[str] = Counter()
    for place, change in list(_sites(tree)):
        before = _code(place.owner)
        with _changed(place, change):
            source = ast.unparse(ast.fix_missing_locations(tree))
            after = _code(place.owner)
        difference = difflib.unified_diff(plain.splitlines(), source.splitlines(), lineterm="", n=0)
        diff = "\n".join(list(difference)[3:])
        if diff:
            mutant = Mutant(path, _header(place.statement), source, diff, _digest(path, place.scope, before, after))
            met[mutant.name] += 1
            yield mutant._replace(nth=met[mutant.name])


def _code(owner: ast.AST) -> str:
    """The text of a statement without the docstrings of functions: rewording one leaves all mutants as they are."""
    worded = [
        node
        for node in ast.walk(owner)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None
    ]
    bodies = [node.body for node in worded]
    for node in worded:
        node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.unparse(owner)
    finally:
        for node, body in zip(worded, bodies, strict=True):
            node.body = body


def _digest(path: Path, scope: str, before: str, after: str) -> str:
    """What identifies a mutant wherever its function moves in the file: the code as it is and as it becomes."""
    text = "\n".join([path.relative_to(PACKAGE).as_posix(), scope, before, after])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@contextmanager
def _changed(node: ast.AST, change: Callable[[ast.AST], None]) -> Iterator[None]:
    """Apply a change to a node for the duration of the block."""
    touched = [node, node.func] if isinstance(node, ast.Call) else [node]
    before = [
        (one, one.__class__, {k: [*v] if isinstance(v, list) else v for k, v in vars(one).items()}) for one in touched
    ]
    change(node)
    try:
        yield
    finally:
        for one, class_, values in before:
            one.__class__, one.__dict__ = class_, values


def _header(statement: ast.stmt) -> range:
    """The lines of a statement, without the lines of the statements in it."""
    inner = getattr(statement, "body", None)
    end = max(statement.lineno, inner[0].lineno - 1) if inner else statement.end_lineno or statement.lineno
    return range(statement.lineno, end + 1)


def _sites(tree: ast.Module):  # type: ignore[no-untyped-def]
    """Each node that can be changed, with each function that changes it."""
    for node in _walk(tree):
        for change in _changes(node):
            yield node, change


def _walk(
    node: ast.AST, statement: ast.stmt | None = None, scope: str = "", function: ast.stmt | None = None
) -> Iterator[ast.AST]:
    """Nodes in the order of the text, without types, decorators, `__all__` and format specifications.

    Each node is given its statement, the classes it is in, and its owner: the outermost function, or, outside of
    functions, the statement.
    """
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
        return
    statement = node if isinstance(node, ast.stmt) else statement
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = function or node
    node.statement, node.scope, node.owner = statement, scope, function or statement  # type: ignore[attr-defined]
    yield node
    if isinstance(node, ast.ClassDef):
        scope = f"{scope}{node.name}."
    for field, value in ast.iter_fields(node):
        if field not in SKIPPED:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, statement, scope, function)


def _changes(node: ast.AST):  # type: ignore[no-untyped-def]
    """The changes that can be made to one node, each as a function that makes it."""
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
    """Whether this is a comparison by order, whose mutant above only moves the edge case."""
    return isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)


def _is_text(node: ast.BinOp) -> bool:
    """Whether this is a concatenation of strings."""
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


# -- running -----------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the mutants of the files asked for, and print the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="the number of mutants, drawn at random")
    parser.add_argument("--all", action="store_true", help="every mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", help="a folder or file of src/fedbandit; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--fresh", action="store_true", help=f"also those that are in {DECIDED.name}")
    parser.add_argument("--log", type=Path, help="write to this file how each fared, and by which test")
    parser.add_argument("--quick", action="store_true", help=f"at most {QUICK:g} seconds of tests per mutant")
    parser.add_argument("--list", action="store_true", help="print which mutants would run, and stop")
    parser.add_argument("--figures", action="store_true", help="print what is known about each file, and stop")
    options = parser.parse_args()
    everything = [mutant for path in _files(options.only) for mutant in mutants(path)]
    drawn = (
        everything
        if options.all
        else random.Random(options.seed).sample(everything, min(options.sample, len(everything)))
    )
    known, decided = _known(), _decided()
    if options.figures:
        print(_figures(everything, known, decided))
        return
    unknown = [mutant for mutant in drawn if mutant.name not in known]
    chosen = [mutant for mutant in unknown if options.fresh or mutant.digest not in decided]
    print(
        f"{len(everything)} mutants, {len(drawn)} drawn, {len(drawn) - len(unknown)} of them known to survive, "
        f"{len(unknown) - len(chosen)} decided before"
    )
    if options.all and not options.only:
        there = {mutant.digest for mutant in everything}
        _decide({digest: how for digest, how in decided.items() if digest in there})
        for name in sorted(known - {mutant.name for mutant in everything}):
            print(f"listed, but no such mutant exists: {name}")
    if options.list:
        print(*(mutant.name for mutant in chosen), sep="\n")
        return
    counts = Counter(outcome.how for outcome in _outcomes(chosen, options))
    print(f"\nof {len(chosen)}: " + ", ".join(f"{number} {how}" for how, number in sorted(counts.items())))
    sys.exit(1 if counts["survived"] else 0)


def _known() -> set[str]:
    """The mutants that are listed with the reason why they live."""
    return {line.split("  # ")[0].strip() for line in KNOWN.read_text().splitlines() if not line.startswith("#")}


def _decided() -> dict[str, str]:
    """The outcomes of mutants that need not be run again, by digest."""
    lines = DECIDED.read_text().splitlines() if DECIDED.exists() else []
    pairs = (line.split(maxsplit=1) for line in lines if not line.startswith("#"))
    return {digest: how[0] if how else "killed" for digest, *how in pairs}


def _decide(decided: dict[str, str]) -> None:
    """Record the outcomes of mutants, sorted so that two branches can be merged."""
    lines = (digest if how == "killed" else f"{digest} {how}" for digest, how in sorted(decided.items()))
    written = DECIDED.with_suffix(".new")  # whole or not at all: a run may be ended at any time
    written.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    written.replace(DECIDED)


def _figures(everything: list[Mutant], known: set[str], decided: dict[str, str]) -> str:
    """A row per file and one for all files: the number of mutants, and how many are killed, timed out and so on."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant in everything:
        how = "listed" if mutant.name in known else decided.get(mutant.digest, "open")
        for row in (mutant.path.relative_to(PACKAGE).as_posix(), "all"):
            counts[row].update(["mutants", how])
    rows = [
        f"| {name} | " + " | ".join(str(one[column]) for column in COLUMNS) + " |"
        for name, one in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0]))
    ]
    return "\n".join([f"| file | {' | '.join(COLUMNS)} |", "|---" + "|---:" * len(COLUMNS) + "|", *rows])


def _files(only: list[str] | None) -> list[Path]:
    wanted = [PACKAGE / name for name in (only or FILES)]
    found = {path for one in wanted for path in ([one] if one.suffix else one.rglob("*.py"))}
    return sorted((path for path in found if path.name != "__init__.py"), key=lambda path: _rank(path, only or []))


def _rank(path: Path, only: list[str]) -> tuple[int, Path]:
    """A sort key: files come in the order in which they were asked for."""
    name = path.relative_to(PACKAGE).as_posix()
    return next((place for place, one in enumerate(only) if name.startswith(one)), 0), path


def _outcomes(chosen: list[Mutant], options: argparse.Namespace) -> Iterator[Outcome]:
    """Run the mutants and yield how each fared; survivors are printed as they are found."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        load()
        lines = trace(SUITE, TRACE, options.fresh)
        for mutant, outcome in _fared(chosen, lines, Path(folder), options.jobs, options.quick):
            yield outcome
            print(".", end="", flush=True)
            if outcome.how != "killed":
                where = f"{mutant.path.relative_to(ROOT)}:{mutant.lines.start}"
                print(f"\n{outcome.how}: {where}\n{mutant.diff}\n  {mutant.name}", flush=True)
            if outcome.how != "survived":
                _decide(_decided() | {mutant.digest: outcome.how})
            elif not options.quick:  # in a fresh run, no test kills it any more
                _decide({digest: how for digest, how in _decided().items() if digest != mutant.digest})
            if options.log is not None:
                with options.log.open("a") as written:
                    written.write(json.dumps({"mutant": mutant.name, **outcome._asdict()}) + "\n")


def _fared(
    chosen: list[Mutant], lines: Lines, folder: Path, jobs: int, quick: bool
) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant and how it fared: in a fork, or on a copy of the source if the fork does not decide."""
    outside, alive = [], chosen
    for longest in STAGES[:-1] if quick else STAGES:
        tried, alive = alive, []
        for mutant, outcome in Forks(lines, SUITE, jobs, longest).fare(tried):
            if outcome is None:
                outside.append(mutant)
            elif outcome.how == "survived":
                alive.append(mutant)
                print(f"\nalive so far: {mutant.name}", flush=True)
            else:
                yield mutant, outcome
    if quick:
        yield from ((mutant, Outcome("survived")) for mutant in alive)
        alive = []
    left = [*outside, *alive]
    print(f"\non a copy of the source: {len(outside)} outside functions, {len(alive)} alive so far", flush=True)
    free: Queue[Fresh] = Queue()
    for job in range(jobs):
        free.put(Fresh(folder / f"job{job}", lines, QUICK if quick else math.inf))

    def fare(mutant: Mutant) -> Outcome:
        judge = free.get()
        try:
            return judge.fare(mutant)
        finally:
            free.put(judge)

    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(left, pool.map(fare, left), strict=True)


if __name__ == "__main__":
    main()
