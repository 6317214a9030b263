"""Loads a user's own protocol from a plain Python file.

The file must define `plan(asked)`. Given a plan with the silos, rounds, dimension and budget of an instance, it returns
the plan to play: for as many silos and rounds, or for one silo that meets all their users one by one, with that budget
or with none. The returned plan may use every trust model and mechanism of the library, and those that the file itself
defines:

* `TRUST`, a `Trust` as in a file of `protocol/trusts`: then `trust=TRUST.name` works;
* `encoder(size)`, as in a file of `protocol/mechanisms`: then `mechanism="name_of_the_file"` works.
"""

from __future__ import annotations

import importlib.util
import inspect
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

from fedbandit._validate import ArgumentError
from fedbandit.plan import Plan
from fedbandit.protocol import mechanisms, trusts
from fedbandit.protocol import trust as trust_models
from fedbandit.protocol.trust import Trust

__all__ = ["FIELD", "Planned", "brought", "plugged_in"]

Planned = Callable[[Plan], Plan]
FIELD = "protocol"  # the argument that errors name
LIBRARY = trust_models.names()  # before any file is plugged in


@contextmanager
def plugged_in(file: Path) -> Iterator[Planned]:
    """The function `plan` of a file. Inside this context, plans know the file's trust model and mechanism by name, and
    an error in the file's code becomes one line that says where it happened."""
    module = _loaded(file)
    planned, declared = getattr(module, "plan", None), getattr(module, "TRUST", None)
    if not callable(planned):
        raise ArgumentError(FIELD, f"must define a function plan(asked) that returns a Plan; {str(file)!r} does not")
    if not _takes_one(planned):
        raise ArgumentError(FIELD, f"must define plan(asked), a function of one argument; that of {str(file)!r} is not")
    copies = [file]
    with ExitStack() as stack:
        if declared is not None:
            copies.append(stack.enter_context(_known(file, trusts, _new_trust(declared).replace("-", "_"))))
        if hasattr(module, "encoder"):
            copies.append(stack.enter_context(_known(file, mechanisms, _new_mechanism(file.stem))))
        with _blamed(copies):
            yield cache(lambda asked: _checked(planned(asked), asked))  # what is played is what is audited


def brought(plan: Plan) -> bool:
    """Whether a plan's trust model came with a user's file."""
    return plan.trust not in LIBRARY


def _loaded(file: Path) -> ModuleType:
    if not file.is_file():
        raise ArgumentError(FIELD, f"must be a Python file; there is no file {str(file)!r}")
    if file.suffix != ".py" or not file.stem.isidentifier():
        raise ArgumentError(FIELD, f"must be a Python file whose name is an identifier, got {str(file)!r}")
    spec = importlib.util.spec_from_file_location(f"compared_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        with _blamed([file]):
            spec.loader.exec_module(module)
    except SyntaxError as error:  # nothing of the file was run, so no frame of the traceback is its own
        raise ArgumentError(FIELD, f"cannot be run: {file}, line {error.lineno}: SyntaxError: {error.msg}") from error
    finally:
        del sys.modules[spec.name]
    return module


def _takes_one(planned: Callable[..., object]) -> bool:
    """Whether a function can be called with one positional argument."""
    try:
        inspect.signature(planned).bind(None)
    except (TypeError, ValueError):  # ValueError: nobody can tell, as of some built-in functions
        return False
    return True


def _new_trust(declared: object) -> str:
    if not isinstance(declared, Trust):
        raise ArgumentError(FIELD, f"must set TRUST to a Trust, got {type(declared).__name__}")
    if declared.name in trust_models.names():
        raise ArgumentError(FIELD, f"must give its TRUST a new name; there already is a {declared.name!r}")
    return declared.name


def _new_mechanism(name: str) -> str:
    if name in mechanisms.names():
        raise ArgumentError(FIELD, f"must give its encoder a new name (the file's name); there already is a {name!r}")
    return name


@contextmanager
def _blamed(copies: Sequence[Path]) -> Iterator[None]:
    """Turn an error in the code of a file, or of a copy of it, into one line that names the first of `copies`. Errors
    elsewhere are not the file's fault and pass unchanged, as does an `ArgumentError`, which says what is wrong."""
    try:
        yield
    except ArgumentError:
        raise
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        own = {str(copy.absolute()) for copy in copies}
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename in own]
        if not lines:
            raise
        what = f"cannot be run: {copies[0]}, line {lines[-1]}: {type(error).__name__}: {error}"
        raise ArgumentError(FIELD, what) from error


@contextmanager
def _known(file: Path, package: ModuleType, name: str) -> Iterator[Path]:
    """Add a copy of the file, under this name, to a package that lists its plug-ins by looking into its folders; the
    path of the copy."""
    before = package.__path__
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(file, Path(folder) / f"{name}.py"))
        package.__path__ = [*before, folder]
        importlib.invalidate_caches()
        try:
            yield copy
        finally:
            package.__path__ = before
            sys.modules.pop(f"{package.__name__}.{name}", None)
            mechanisms.encoder.cache_clear()


def _checked(plan: object, asked: Plan) -> Plan:
    if not isinstance(plan, Plan):
        raise ArgumentError(FIELD, f"must return a Plan from plan(asked), got {type(plan).__name__}")
    users = asked.silos * asked.rounds
    if (plan.silos, plan.rounds) not in ((asked.silos, asked.rounds), (1, users)) or plan.dim != asked.dim:
        raise ArgumentError(
            FIELD,
            f"must return a plan of {asked.silos} silos and {asked.rounds} rounds, or of 1 and {users}, and dimension "
            f"{asked.dim}, got {plan.silos}, {plan.rounds} and {plan.dim}",
        )
    if plan.privacy not in (None, asked.privacy):
        assert asked.privacy is not None
        kept = f"must keep the budget that all are asked for, {asked.privacy.pair}, with its adjacency and visits"
        raise ArgumentError(FIELD, f"{kept}, or have none, got {plan.privacy}")
    if plan.bits != asked.bits:
        raise ArgumentError(FIELD, f"must keep the grid of {asked.bits} bits that all entrants share, got {plan.bits}")
    if plan.prior is not None:
        raise ArgumentError(FIELD, "must begin with nothing known, as all entrants do; the plan has a prior")
    return plan
