"""Runs tests on mutants: from one changed file to "killed", and by which test.

Most mutants change one function and are decided in seconds. All tests are collected once, in one process. Each mutant
is a fork of that process in which the function has the mutant's code (or a constant, default or field has the mutant's
value), and in which everything computed before is forgotten. Only tests that run the changed line are run, first those
that killed mutants of the same file (`Forks`). A mutant that no test notices there is run again in a process that
imports a changed copy of the source (`Fresh`), so that none survives because of something computed before the change.

Which tests run which line is traced once and kept (`trace`). A changed test file is traced again. Lines of the source
that have moved are found at their new place; for new lines, all tests that run any line of the file are used. So a
killed mutant is really killed, whatever has changed since, but a surviving one is certain only after a fresh trace.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import functools
import gc
import hashlib
import importlib
import inspect
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import time
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Forks", "Fresh", "Lines", "Mutant", "Outcome", "load", "trace"]

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedbandit"
SLOW = (  # modules that are slow to import, so they are imported once, before processes are forked
    *("pytest", "numpy", "scipy.stats", "scipy.optimize", "scipy.signal", "scipy.integrate", "numba", "polars"),
    *("hypothesis.strategies", "dp_accounting", "opendp.prelude", "cryptography.hazmat.primitives.hpke", "coverage"),
)
ARGUMENTS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-m", "not torture and not fire"),
    "--tb=line",  # showing the source of a failure takes far longer than most tests
)
READERS = {"protocol/trusts": "tests/protocol/test_trust.py"}  # by folder: the tests of what its files declare
FORK = 0.1  # seconds that a mutant takes even without tests
SURVIVED, UNUSABLE, UNCHANGED, KILLED = 0, 9, 8, 10  # exit codes of a process that runs tests


class Mutant(NamedTuple):
    """One changed file."""

    path: Path
    lines: range  # of the statement that changed, without the statements in it
    source: str
    diff: str
    digest: str  # of the file's name and of the function, before and after
    nth: int = 1  # among the file's mutants that look like this

    @property
    def name(self) -> str:
        """The file and what changed, on one line: known survivors are recognised by it even if they move."""
        changed = [line for line in self.diff.splitlines() if line[:1] in "+-"]
        which = "" if self.nth == 1 else f" ({self.nth})"
        return f"{self.path.relative_to(PACKAGE)}: " + " -> ".join(line[1:].strip() for line in changed) + which


class Outcome(NamedTuple):
    """How a mutant fared: "killed", "timed out" or "survived", and the test that killed it."""

    how: str
    by: str = ""


# -- which tests run which line ---------------------------------------------------------------------------------------


class Lines(NamedTuple):
    """Which tests run which line, and how long each test takes."""

    seconds: dict[str, float]  # by test
    tests: dict[str, dict[int, tuple[str, ...]]]  # by file of the package and by line

    def of(self, mutant: Mutant) -> tuple[str, ...]:
        """The tests that run what changed, or that run any line of the file if the change runs at import.

        Tests that read what the file declares are added.
        """
        lines = self.tests.get(mutant.path.relative_to(PACKAGE).as_posix(), {})
        found = {test for line in mutant.lines for test in lines.get(line, ())}
        reader = READERS.get(mutant.path.parent.relative_to(PACKAGE).as_posix())
        declared = {test for test in self.seconds if test.split("::")[0] == reader}
        return tuple((found or set(self.near(mutant.path))) | declared or self.seconds)

    def near(self, path: Path) -> Counter[str]:
        """How many lines of a file each test runs."""
        lines = self.tests.get(path.relative_to(PACKAGE).as_posix(), {})
        return Counter(test for tests in lines.values() for test in tests)


def trace(suite: Sequence[str], kept: Path, fresh: bool) -> Lines:
    """Run the suite once and record which test runs which line of the package.

    Unless `fresh`, test files that were traced before are read from `kept`.
    """
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    known = json.loads(kept.read_text()) if kept.exists() and not fresh else {"sources": {}, "files": {}}
    files = {str(file.relative_to(ROOT)): _digest([file]) for one in suite for file in _test_files(ROOT / one)}
    moved = {name: _moved(text, sources.get(name, "")) for name, text in known["sources"].items()}
    traced = {
        name: {**one, "lines": {file: _renumbered(lines, moved[file]) for file, lines in one["lines"].items()}}
        for name, one in known["files"].items()
        if name in files and one["of"] == files[name]
    }
    stale = [name for name in files if name not in traced]
    if stale:
        print(f"tracing {len(stale)} test files", flush=True)
        receive, send = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=_trace, args=(stale, send))
        process.start()
        send.close()
        found, failed = receive.recv()
        process.join()
        for name in failed:
            print(f"fails on the unchanged source, so it is not used: {name}", flush=True)
        traced |= {name: {"of": files[name], **found[name]} for name in stale}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"sources": sources, "files": traced}))
    return _joined(traced.values())


def _moved(before: str, after: str) -> dict[int, int]:
    """The new numbers of those lines of a file that are still there, by their old numbers."""
    if before == after:
        return {line: line for line in range(1, before.count("\n") + 2)}
    blocks = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return {a + i + 1: b + i + 1 for a, b, size in blocks.get_matching_blocks() for i in range(size)}


def _renumbered(lines: dict[str, list[str]], moved: dict[int, int]) -> dict[str, list[str]]:
    return {str(moved[int(line)]): tests for line, tests in lines.items() if int(line) in moved}


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\n" + file.read_bytes())
    return digest.hexdigest()


def _test_files(path: Path) -> list[Path]:
    return sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def _joined(traced: Iterable[dict[str, Any]]) -> Lines:
    seconds: dict[str, float] = {}
    tests: dict[str, dict[int, tuple[str, ...]]] = defaultdict(dict)
    for one in traced:
        seconds |= one["seconds"]
        for file, lines in one["lines"].items():
            for line, names in lines.items():
                tests[file][int(line)] = (*tests[file].get(int(line), ()), *names)
    return Lines(seconds, dict(tests))


def _trace(files: Sequence[str], send: Connection) -> None:
    """Trace some test files, in a separate process."""
    import coverage
    import pytest

    _quiet(str(ROOT / "src"))
    tracer = coverage.Coverage(data_file=None, config_file=False, source=[str(PACKAGE)], messages=False)
    plugin = _Tracer(tracer)
    tracer.start()
    code = pytest.main([*ARGUMENTS, *files], plugins=[plugin])
    tracer.stop()
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError("pytest could not run the tests")
    found: dict[str, Any] = {file: {"seconds": {}, "lines": defaultdict(dict)} for file in files}
    sound = {test: seconds for test, seconds in plugin.seconds.items() if test not in plugin.failed}
    for test, seconds in sound.items():
        found[test.split("::")[0]]["seconds"][test] = seconds
    data = tracer.get_data()
    for path in data.measured_files():
        name = Path(path).relative_to(PACKAGE).as_posix()
        for line, tests in data.contexts_by_lineno(path).items():
            for test in sound.keys() & set(tests):
                found[test.split("::")[0]]["lines"][name].setdefault(line, []).append(test)
    send.send((found, sorted(plugin.failed)))


class _Tracer:
    """A pytest plug-in: each test is a context of the trace, and starts with empty caches."""

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._memories: _Memories | None = None
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._memories = self._memories or _Memories()
        self._memories.forget()
        self._tracer.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)


class _Memories:
    """The values that the package has computed and cached by the time that tests are collected."""

    def __init__(self) -> None:
        self._caches, self._values = [], []
        for one in gc.get_objects():
            if isinstance(one, functools._lru_cache_wrapper):
                if _ours(getattr(one, "__module__", "")):
                    self._caches.append(one)
            elif _ours(getattr(type(one), "__module__", "")) and hasattr(one, "__dict__") and _kept(type(one)):
                self._values.append(one)

    def forget(self) -> None:
        """Empty all these caches."""
        for cache in self._caches:
            cache.cache_clear()
        for value in self._values:
            for name in _kept(type(value)):
                value.__dict__.pop(name, None)


def _ours(module: object) -> bool:
    return isinstance(module, str) and module.split(".")[0] in ("fedbandit", "tests")


@functools.cache
def _kept(type_: type) -> tuple[str, ...]:
    """The names of the properties that a value of this type computes once and caches."""
    return tuple(name for name in dir(type_) if isinstance(getattr(type_, name, None), functools.cached_property))


# -- in forks of one process that has collected everything ------------------------------------------------------------


class Forks:
    """Judges mutants of functions, each in a fork; the others are for `Fresh`."""

    def __init__(self, lines: Lines, suite: Sequence[str], jobs: int, longest: float) -> None:
        """`longest` is the most seconds of tests per mutant; the most promising tests are run."""
        self._lines, self._suite, self._jobs, self._longest = lines, suite, jobs, longest

    def fare(self, mutants: Sequence[Mutant]) -> Iterator[tuple[Mutant, Outcome | None]]:
        """How each mutant fared, as soon as it is known; None if it cannot be judged here, outside functions."""
        receive, send = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=self._serve, args=(mutants, send))
        process.start()
        send.close()
        for _ in mutants:
            number, outcome = receive.recv()
            yield mutants[number], outcome
        process.join()

    def _serve(self, mutants: Sequence[Mutant], send: Connection) -> None:
        import pytest

        _quiet(str(ROOT / "src"))
        try:
            server = _Server(mutants, self._lines, self._jobs, self._longest, send.send)
            pytest.main([*ARGUMENTS, *self._suite], plugins=[server])
        finally:
            send.close()


class _Server:
    """A pytest plug-in that runs mutants where pytest would run the tests."""

    def __init__(
        self, mutants: Sequence[Mutant], lines: Lines, jobs: int, longest: float, tell: Callable[[Any], None]
    ) -> None:
        self._mutants, self._lines, self._jobs, self._longest, self._tell = mutants, lines, jobs, longest, tell
        self._kills: Counter[tuple[Path, str]] = Counter()
        self._sound: dict[str, bool] = {}
        self._failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._functions = _functions({mutant.path for mutant in self._mutants})
        for mutant in self._mutants:
            _compiled_as_it_is(mutant.path)
        self._memories = _Memories()
        gc.freeze()
        running: dict[int, int] = {}  # numbers of mutants, by process
        for number, mutant in enumerate(self._mutants):
            while len(running) >= self._jobs:
                self._reap(running)
            running[self._fork(mutant, self._ordered(mutant))] = number
        while running:
            self._reap(running)
        return True

    def _ordered(self, mutant: Mutant) -> tuple[str, ...]:
        """The tests in the order in which to run them, as many as there is time for.

        First come the tests that killed most mutants of this file for their time, then tests that are named after the
        file. Within these and the others, one example of each test comes first, then a second one, and so on; quick
        tests come before slow ones.
        """
        usable = (test for test in self._lines.of(mutant) if test in self._items and self._sound.get(test, True))
        met: Counter[str] = Counter()
        ranks = {}
        for test in sorted(usable, key=_shuffled):
            function = test.split("[")[0]
            met[function] += 1
            other = mutant.path.stem not in function.split("::")[0]
            seconds = self._lines.seconds[test]
            ranks[test] = (-self._kills[mutant.path, test] / (FORK + seconds), other, met[function], seconds)
        taken, left = list[str](), self._longest
        for test in sorted(ranks, key=ranks.__getitem__):
            if self._lines.seconds[test] <= left:
                taken.append(test)
                left -= self._lines.seconds[test]
        return tuple(taken) or (min(ranks, key=self._lines.seconds.__getitem__),)

    def _reap(self, running: dict[int, int]) -> None:
        pid, status = os.wait()
        number = running.pop(pid)
        mutant, code = self._mutants[number], os.waitstatus_to_exitcode(status)
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            self._tell((number, Outcome("timed out")))
        elif code == SURVIVED:
            self._tell((number, Outcome("survived")))
        elif code != KILLED:  # the mutant could not be made here, or it crashed
            self._tell((number, None))
        else:
            by = Path(f"{self._notes}/{pid}").read_text()
            if not self._passes(by):
                running[self._fork(mutant, self._ordered(mutant))] = number
                return
            self._kills[mutant.path, by] += 1
            self._tell((number, Outcome("killed", by)))

    def _passes(self, test: str) -> bool:
        """Whether a test passes on the unchanged source, in a fork like those of mutants."""
        if test not in self._sound:
            pid = self._fork(None, (test,))
            self._sound[test] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == SURVIVED
        return self._sound[test]

    @functools.cached_property
    def _notes(self) -> Path:
        """The folder in which a fork notes which test failed."""
        folder = Path(os.environ["PYTEST_DEBUG_TEMPROOT"]) / "notes"
        folder.mkdir(exist_ok=True)
        return folder

    def _fork(self, mutant: Mutant | None, tests: tuple[str, ...]) -> int:
        notes = self._notes
        pid = os.fork()
        if pid:
            return pid
        try:
            os._exit(self._run(mutant, tests, notes))
        except BaseException:
            os._exit(UNUSABLE)

    def _run(self, mutant: Mutant | None, tests: tuple[str, ...], notes: Path) -> int:
        """In a fork, run the tests until one fails."""
        if mutant is not None and not (_replaced(mutant, self._functions) or _rebound(mutant)):
            return UNCHANGED
        self._memories.forget()
        items = [self._items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            _limit(self._lines.seconds[item.nodeid])
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                (notes / str(os.getpid())).write_text(item.nodeid)
                self._session._setupstate.teardown_exact(None)
                return KILLED
        return SURVIVED


def _shuffled(test: str) -> bytes:
    """A sort key that puts unrelated examples next to each other."""
    return hashlib.sha256(test.encode()).digest()


def _replaced(mutant: Mutant, functions: Functions) -> bool:
    """Give the one function that differs its new code, wherever it is referenced; False if no function differs."""
    pair = _differing(_compiled_as_it_is(mutant.path), compile(mutant.source, str(mutant.path), "exec"))
    if pair is None:
        return False
    old, new = pair
    module, changed = _module(mutant.path), False
    for function in functions.get((module, old.co_qualname), ()):
        if function.__code__.co_code == old.co_code:
            function.__code__ = new
            changed = True
    return changed


def _rebound(mutant: Mutant) -> bool:
    """Give constants, defaults of functions and fields of classes the mutant's values, wherever they are referenced.

    False if none of them differs.
    """
    module = sys.modules[_module(mutant.path)]
    other = types.ModuleType(module.__name__)
    other.__dict__.update({name: getattr(module, name) for name in ("__file__", "__package__", "__spec__")})
    exec(compile(mutant.source, str(mutant.path), "exec"), other.__dict__)
    changed = False
    for name, new in vars(other).items():
        old = vars(module).get(name)
        if getattr(new, "__module__", "") == module.__name__ and isinstance(new, types.FunctionType):
            changed |= _defaults_taken(old, new)
        elif getattr(new, "__module__", "") == module.__name__ and isinstance(new, type):
            changed |= _fields_taken(old, new)
        elif dataclasses.is_dataclass(new) and not isinstance(new, type) and type(new) is type(old):
            pairs = ((field.name, getattr(new, field.name)) for field in dataclasses.fields(new))
            values = {name: value for name, value in pairs if _is_value(value) and value != getattr(old, name)}
            changed |= bool(values) and _bound(name, old, dataclasses.replace(old, **values))
        elif _is_value(new) and not np.array_equal(new, old):  # type: ignore[arg-type]
            changed |= _bound(name, old, new)
    return changed


def _is_value(one: object) -> bool:
    return isinstance(one, bool | int | float | Fraction | tuple | dict | np.ndarray)


def _bound(name: str, old: object, new: object) -> bool:
    """Bind the name to the new value in every module that imported the old one."""
    for module in list(sys.modules.values()):
        if _ours(getattr(module, "__name__", "")) and name in vars(module):
            there = vars(module)[name]
            if there is old or (_is_value(there) and np.array_equal(there, old)):  # type: ignore[arg-type]
                setattr(module, name, new)
    return True


def _defaults_taken(old: Any, new: Any) -> bool:
    if (old.__defaults__, old.__kwdefaults__) == (new.__defaults__, new.__kwdefaults__):
        return False
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    return True


def _fields_taken(old: Any, new: Any) -> bool:
    """Give a class the new values of its attributes, and of the defaults of its constructor."""
    if issubclass(new, enum.Enum):
        return False  # too many places refer to its members
    changed = False
    for name, value in vars(new).items():
        if not name.startswith("__") and _is_value(value) and value != vars(old).get(name):
            setattr(old, name, value)
            changed = True
    maker = "__new__" if issubclass(new, tuple) else "__init__"
    before, after = (getattr(vars(one).get(maker), "__defaults__", None) or () for one in (old, new))
    taken = tuple(b if _is_value(b) else a for a, b in zip(before, after, strict=True))
    if taken != before:
        vars(old)[maker].__defaults__ = taken
        for name, field in getattr(new, "__dataclass_fields__", {}).items():
            if _is_value(field.default):
                old.__dataclass_fields__[name].default = field.default
        changed = True
    return changed


@functools.cache
def _compiled_as_it_is(path: Path) -> types.CodeType:
    return compile(ast.unparse(ast.parse(path.read_text())), str(path), "exec")


Functions = dict[tuple[str, str], list[types.FunctionType]]


def _functions(paths: Iterable[Path]) -> Functions:
    """The functions of the package, by module and name, after importing these files."""
    for path in paths:
        importlib.import_module(_module(path))
    found: Functions = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType) and _ours(one.__module__):
            found[one.__module__, one.__code__.co_qualname].append(one)
    return found


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)


def _differing(before: types.CodeType, after: types.CodeType) -> tuple[types.CodeType, types.CodeType] | None:
    """The outermost function whose code differs, before and after; None if something else differs."""
    pairs = list(zip(_inner(before), _inner(after), strict=False))
    if before.co_code != after.co_code or _plain(before) != _plain(after) or len(_inner(before)) != len(_inner(after)):
        return None
    for old, new in pairs:
        if old == new:
            continue
        is_function = old.co_flags & inspect.CO_OPTIMIZED  # the body of a class is not
        return (old, new) if is_function else _differing(old, new)
    return None


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [one for one in code.co_consts if isinstance(one, types.CodeType)]


def _plain(code: types.CodeType) -> list[object]:
    return [(type(one), one) for one in code.co_consts if not isinstance(one, types.CodeType)]


# -- in a process that imports a changed copy -------------------------------------------------------------------------


class Fresh:
    """Judges any mutant: imports a copy of the source with the change, and collects the tests again."""

    def __init__(self, folder: Path, lines: Lines, longest: float) -> None:
        """`longest` is the most seconds of tests per mutant; the most promising tests are run."""
        self._longest = longest
        self._copy = Path(shutil.copytree(ROOT / "src", folder / "copy", ignore=_compiled))
        self._lines, self._stamp = lines, int(time.time())
        self._sound: set[str] = set()  # test files that pass on the unchanged source

    def fare(self, mutant: Mutant) -> Outcome:
        """How a mutant fares."""
        files = self._files(mutant)
        code = self._code(mutant, files)
        if code in (-signal.SIGXCPU, -signal.SIGALRM):
            return Outcome("timed out")
        if code == SURVIVED:
            return Outcome("survived")
        if code == UNUSABLE:
            raise RuntimeError(f"pytest could not run the tests of {mutant.path}")
        by = list(files)[code - KILLED] if code >= KILLED else "a crash"
        self._check({name: tests for name, tests in files.items() if by in (name, "a crash")})
        return Outcome("killed", by)

    def _files(self, mutant: Mutant) -> dict[str, list[str]]:
        """The tests by file; files that run most lines of the mutant's file come first."""
        near: Counter[str] = Counter()
        for test, lines in self._lines.near(mutant.path).items():
            near[test.split("::")[0]] += lines
        grouped: dict[str, list[str]] = defaultdict(list)
        for test in self._lines.of(mutant):
            grouped[test.split("::")[0]].append(test)
        ordered = sorted(grouped, key=lambda name: -near[name])
        until = itertools.accumulate(sum(map(self._lines.seconds.__getitem__, grouped[name])) for name in ordered)
        within = [name for name, seconds in zip(ordered, until, strict=True) if seconds <= self._longest]
        return {name: grouped[name] for name in within or ordered[:1]}

    def _check(self, files: dict[str, list[str]]) -> None:
        """Check that test files which failed on a mutant pass on the unchanged source."""
        for name, tests in files.items():
            if name not in self._sound and self._code(None, {name: tests}) != SURVIVED:
                raise RuntimeError(f"{name} fails on the unchanged source: no mutant can be judged by it")
            self._sound.add(name)

    def _code(self, mutant: Mutant | None, files: dict[str, list[str]]) -> int:
        """The exit code of the tests on the copy, with this change or without any."""
        if mutant is None:
            return self._exit_code(files)
        target = self._copy / mutant.path.relative_to(ROOT / "src")
        original, times = target.read_text(), target.stat()
        try:
            target.write_text(mutant.source)
            self._stamp += 1  # a new time stamp, or Python would use an older compiled file
            os.utime(target, (self._stamp, self._stamp))
            return self._exit_code(files)
        finally:
            target.write_text(original)
            os.utime(target, (times.st_atime, times.st_mtime))

    def _exit_code(self, files: dict[str, list[str]]) -> int:
        process = multiprocessing.get_context("fork").Process(target=self._run, args=(files,))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    def _run(self, files: dict[str, list[str]]) -> None:
        """In a separate process, run the tests, file by file, until one fails."""
        import pytest

        _quiet(str(self._copy))
        _limit(sum(self._lines.seconds[test] for tests in files.values() for test in tests))
        for number, (name, tests) in enumerate(files.items()):
            code = pytest.main([*ARGUMENTS, "-x", name], plugins=[_Only(set(tests))])
            if code in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED):  # the latter: the import failed
                os._exit(KILLED + number)
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                os._exit(UNUSABLE)
        os._exit(SURVIVED)


class _Only:
    """A pytest plug-in that selects these tests, and new parametrisations that the change has made."""

    def __init__(self, tests: set[str]) -> None:
        self._functions = {test.split("[")[0] for test in tests}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid.split("[")[0] in self._functions]


# -- shared -----------------------------------------------------------------------------------------------------------


def load() -> None:
    """Import the slow modules before processes are forked."""
    for module in SLOW:
        __import__(module)


def _quiet(source: str) -> None:
    """Print nothing, and import the package from `source`."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = source
    sys.path[:0] = [source, str(ROOT)]


def _limit(seconds: float) -> None:
    """End this process if the tests take far longer than `seconds`, their traced time on the unchanged source."""
    used, limit = resource.getrusage(resource.RUSAGE_SELF), int(3 + 2 * seconds)
    spent = int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + limit, resource.RLIM_INFINITY))
    signal.alarm(100 * limit)


def _compiled(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
