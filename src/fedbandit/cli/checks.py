"""Checks of a command's options, made before it does anything. An option that would have no effect is an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from fedbandit._validate import ArgumentError

__all__ = ["broker_ca", "given", "no_effect", "no_other_effect", "picture", "readable", "reasoned", "writing"]

PICTURES = (".svg", ".png", ".pdf")


def given(context: typer.Context, name: str) -> bool:
    """Whether this option was given on the command line, even if with its default value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def no_effect(context: typer.Context, names: Iterable[str], why: str) -> None:
    """Refuse any of these options that was given: it has no effect in the case that `why` names."""
    flags = {str(one.name): max(one.opts, key=len) for one in context.command.params}
    for name in names:
        if given(context, name):
            raise ArgumentError(flags[name], f"has no effect {why}")


def no_other_effect(context: typer.Context, names: Collection[str], why: str) -> None:
    """Refuse every option that was given and is not one of these."""
    no_effect(context, (str(one.name) for one in context.command.params if one.name not in names), why)


def readable(field: str, path: Path) -> Path:
    """A file that can be read."""
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ArgumentError(field, f"must be a file that can be read, got {reasoned(path, error)}") from None


@contextmanager
def writing(field: str, path: Path, what: str = "directory") -> Iterator[None]:
    """Turn an OSError of the code inside into an ArgumentError about the path that it writes to."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(field, f"must be a {what} that can be written, got {reasoned(path, error)}") from None


def picture(field: str, path: Path) -> Path:
    """A path to which a picture can be written, in the format that its ending names."""
    if path.suffix.lower() not in PICTURES:
        raise ArgumentError(field, f"must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}, got {str(path)!r}")
    existed = path.exists()
    try:
        path.open("ab").close()
    except OSError as error:
        raise ArgumentError(field, f"must be a file that can be written, got {reasoned(path, error)}") from None
    if not existed:
        path.unlink()
    return path


def broker_ca(path: str, broker: str) -> str:
    """The PEM file of a broker's certificate authority, as a party keeps it: its absolute path, empty for none."""
    if not path:
        return ""
    if not broker.startswith("tls://"):
        raise ArgumentError("--broker-ca", f"has no effect: the broker at {broker} shows no certificate (no tls://)")
    from fedbandit.federation.setup.certificates import authority  # imported late: it loads the live federation

    found = Path(path).resolve()
    authority(str(found))
    return str(found)


def reasoned(path: Path, error: OSError) -> str:
    """A path, and what is wrong with it."""
    return f"{str(path)!r} ({error.strerror})"
