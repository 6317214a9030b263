"""The file of a backup: a tar stream that begins with a manifest, in the clear or under a passphrase.

Nothing in it is trusted: only files that the manifest names are extracted, under plain names, and only if their lengths
and hashes are those of the manifest.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, cast

from fedbandit import _validate
from fedbandit._validate import ArgumentError
from fedbandit.federation.backup.passphrase import MAGIC, SealedReader, SealedWriter

__all__ = [
    "FORMAT",
    "STORE",
    "Manifest",
    "Saved",
    "StoreFacts",
    "hash_of",
    "node_file",
    "plain_name",
    "take_out",
    "write",
]

FORMAT = 1  # of the archive
MANIFEST, STORE = "manifest.json", "store.db"
MOST_MANIFEST = 2**20  # bytes
PIECE = 2**20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,80}")


class Saved(NamedTuple):
    """A file in a backup."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class StoreFacts:
    """The state of the store: the number of `syncs` that the party had drawn or closed in the term, of entries in its
    ledger, and of rewards `waiting` for their release (which are in the backup if `raw`)."""

    kind: str  # sqlite or postgresql
    format: str
    syncs: int
    ledger: int = 0
    head: str = ""  # hash of the last entry in a silo's ledger
    term: int = 0
    waiting: int = 0
    raw: bool = True


@dataclass(frozen=True)
class Manifest:
    """What a backup contains, and whose it is."""

    party: str
    role: str
    federation: str
    fingerprint: str
    plan: str
    version: str  # of fedbandit
    time: float  # unix time at which it was begun
    files: Mapping[str, Saved]
    store: StoreFacts | None = None
    format: int = FORMAT

    def encode(self) -> bytes:
        return json.dumps(asdict(self) | {"files": {n: s._asdict() for n, s in self.files.items()}}, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        with _validate.reading("backup"):
            found = _validate.table("backup", data)
            if found.get("format") != FORMAT:
                raise ArgumentError(
                    "backup", f"has format {found.get('format')!r}, not {FORMAT}: use the version that wrote it"
                )
            _validate.known_keys("backup", found, cls.__dataclass_fields__, required=("party", "role", "files"))
            files = {plain_name(name): Saved(**saved) for name, saved in found["files"].items()}
            store = None if found["store"] is None else StoreFacts(**found["store"])
            return cls(**{**found, "files": files, "store": store})


class _Stream(Protocol):
    """The part of a file that tarfile needs for reading."""

    def read(self, size: int, /) -> bytes: ...


def node_file(configuration: Path) -> str:
    """The name of a broker node's configuration in a backup, which has no folders."""
    return f"{configuration.parent.name}-{configuration.name}"


def hash_of(path: Path) -> Saved:
    with path.open("rb") as file:
        return Saved(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def write(path: Path, manifest: Manifest, files: Mapping[str, Path], passphrase: bytes | None) -> None:
    """Write a new file that only its owner can read; it gets its name when it is complete and on disk."""
    if path.exists():
        raise ArgumentError("file", f"must be new, but {str(path)!r} exists: a backup is not overwritten")
    partial = path.with_name(f"{path.name}.partial")
    with open(_begun(partial), "wb") as file:
        try:
            sealed = None if passphrase is None else SealedWriter(file, passphrase)
            with tarfile.open(fileobj=cast(IO[bytes], sealed or file), mode="w|", format=tarfile.PAX_FORMAT) as tar:
                _add(tar, MANIFEST, io.BytesIO(manifest.encode()), len(manifest.encode()), manifest.time)
                for name, saved in manifest.files.items():
                    with files[name].open("rb") as content:
                        _add(tar, name, content, saved.bytes, manifest.time)
            if sealed is not None:
                sealed.close()
            file.flush()
            os.fsync(file.fileno())
            partial.rename(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    _force(path.parent)


def _begun(partial: Path) -> int:
    """The descriptor of a new file, held for as long as it is open. What a killed process has left under this name is
    removed: it may contain raw rows, and no later backup could be written."""
    with suppress(FileNotFoundError):
        left = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            _hold(left, partial)
            partial.unlink()
        finally:
            os.close(left)
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    _hold(descriptor, partial)
    return descriptor


def _hold(descriptor: int, partial: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        says = f"must not be written by two processes at a time, and another one is writing {str(partial)!r}"
        raise ArgumentError("file", says) from None


def take_out(path: Path, folder: Path, passphrase: Callable[[], bytes]) -> Manifest:
    """Check a backup and extract its files into an empty folder, readable by their owner only; `passphrase` is called
    if the file is sealed."""
    with _opened(path, passphrase) as stream, _validate.reading("backup"), _tar(stream) as tar:
        members = iter(tar)
        manifest = _manifest(tar, next(members, None))
        left = dict(manifest.files)
        for member in members:
            saved = left.pop(member.name, None)
            if saved is None or not member.isreg():
                raise ArgumentError("backup", f"contains {member.name!r}, which its manifest does not name")
            _take(tar, member, folder / member.name, saved)
        if left:
            raise ArgumentError("backup", f"lacks {', '.join(left)}, which its manifest names: it was cut")
        while stream.read(PIECE):  # the seals after the last file are checked too
            pass
    return manifest


@contextmanager
def _opened(path: Path, passphrase: Callable[[], bytes]) -> Iterator[_Stream]:
    with path.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            yield SealedReader(file, passphrase())
        else:
            file.seek(0)
            yield file


@contextmanager
def _tar(stream: _Stream) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as tar:
            yield tar
    except tarfile.TarError as error:
        raise ArgumentError("backup", f"must be a whole file that `fedbandit backup` made: {error}") from None


def _manifest(tar: tarfile.TarFile, member: tarfile.TarInfo | None) -> Manifest:
    if member is None or member.name != MANIFEST or member.size > MOST_MANIFEST:
        raise ArgumentError("backup", f"must begin with {MANIFEST}: this is not a backup of fedbandit")
    content = tar.extractfile(member)
    assert content is not None, "the manifest is a regular file"
    return Manifest.decode(content.read())


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, saved: Saved) -> None:
    content, hashed, size = tar.extractfile(member), hashlib.sha256(), 0
    assert content is not None, "it is a regular file"
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        while piece := content.read(PIECE):
            hashed.update(piece)
            size += file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    if Saved(size, hashed.hexdigest()) != saved:
        raise ArgumentError("backup", f"is damaged: {member.name} is not what was saved")


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int, at: float) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, int(at)
    tar.addfile(member, content)


def plain_name(name: Any) -> str:
    """The name of a file in a backup; refused if it could lead out of the folder."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ArgumentError("backup", f"must have plain names for files, got {name!r}")
    return name


def _force(folder: Path) -> None:
    """Force the folder to disk, so that the file keeps its name after a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
