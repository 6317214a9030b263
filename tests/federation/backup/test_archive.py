"""The file of a backup: what goes in comes out, and nothing else does."""

import fcntl
import io
import json
import os
import stat
import tarfile

import pytest

from fedbandit._validate import ArgumentError
from fedbandit.federation.backup import archive, passphrase
from fedbandit.federation.backup.archive import Manifest, Saved, StoreFacts

SECRET = b"correct horse battery staple"


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    """scrypt as in the real thing, with less memory."""
    monkeypatch.setattr(passphrase, "COST", 2**10)


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "party.key").write_bytes(b"secret key")
    (folder / "store.db").write_bytes(os.urandom(3 * passphrase.CHUNK + 17))
    return {path.name: path for path in folder.iterdir()}


def manifest(files):
    facts = StoreFacts("sqlite", "4", 3, 3, "ab", 1, 7)
    hashes = {name: archive.hash_of(path) for name, path in files.items()}
    return Manifest("a", "silo", "trial", "f" * 32, "p" * 64, "0.2.0", 1000.0, hashes, facts)


def taken_out(file, folder, secret=SECRET):
    folder.mkdir()
    return archive.take_out(file, folder, lambda: secret)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_what_goes_in_comes_out(tmp_path, files, secret):
    file = tmp_path / "backup"
    archive.write(file, manifest(files), files, secret)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (b"secret key" in file.read_bytes()) == (secret is None)
    assert taken_out(file, tmp_path / "out") == manifest(files)
    for name, path in files.items():
        out = tmp_path / "out" / name
        assert out.read_bytes() == path.read_bytes()
        assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "in", "out"]


def test_what_a_killed_backup_has_left_is_in_nobody_s_way(tmp_path, files):
    """The next backup of the same name, which a timer makes every day, failed with "File exists"."""
    left = tmp_path / "backup.partial"
    left.write_bytes(b"raw rows")
    with left.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ArgumentError, match="another one is writing"):
            archive.write(tmp_path / "backup", manifest(files), files, None)
    assert left.read_bytes() == b"raw rows"
    archive.write(tmp_path / "backup", manifest(files), files, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "in"]
    assert taken_out(tmp_path / "backup", tmp_path / "out") == manifest(files)


@pytest.mark.parametrize("size", [0, 1, passphrase.CHUNK - 1, passphrase.CHUNK, passphrase.CHUNK + 1])
def test_a_sealed_stream_of_any_length(size):
    data, file = os.urandom(size), io.BytesIO()
    writer = passphrase.SealedWriter(file, SECRET)
    writer.write(data[: size // 2])
    writer.write(data[size // 2 :])
    writer.close()
    file.seek(len(passphrase.MAGIC))
    assert passphrase.SealedReader(file, SECRET).read(size + 1) == data


def test_two_backups_under_one_passphrase_have_nothing_in_common(tmp_path, files):
    for name in ("a", "b"):
        archive.write(tmp_path / name, manifest(files), files, SECRET)
    first, second = ((tmp_path / name).read_bytes()[-1000:] for name in ("a", "b"))
    assert sum(x == y for x, y in zip(first, second, strict=True)) < 50


def test_a_wrong_passphrase_is_refused(tmp_path, files):
    archive.write(tmp_path / "backup", manifest(files), files, SECRET)
    with pytest.raises(ArgumentError, match="wrong passphrase"):
        taken_out(tmp_path / "backup", tmp_path / "out", b"wrong")
    with pytest.raises(ArgumentError, match="must not be empty"):
        archive.write(tmp_path / "other", manifest(files), files, b"")
    assert not (tmp_path / "other").exists()


def damages(data, sealed):
    """Damaged copies: bytes flipped, the end cut off, chunks left out, put elsewhere, or added."""
    for at in range(0, len(data), len(data) // 40):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    if sealed:
        start = len(passphrase.MAGIC) + 2 + int.from_bytes(data[len(passphrase.MAGIC) :][:2])
        size = passphrase.CHUNK + passphrase.TAG_BYTES
        head, chunks = data[:start], [data[at : at + size] for at in range(start, len(data), size)]
        assert len(chunks) == 4
        yield head + b"".join(chunks[:-1])
        yield head + b"".join(chunks[1:])
        yield head + b"".join([chunks[1], chunks[0], *chunks[2:]])
        yield data + chunks[-1]
        yield data[:-1]


def test_a_sealed_backup_that_was_touched_is_refused(tmp_path, files):
    archive.write(tmp_path / "backup", manifest(files), files, SECRET)
    for number, data in enumerate(damages((tmp_path / "backup").read_bytes(), sealed=True)):
        (tmp_path / "damaged").write_bytes(data)
        with pytest.raises(ArgumentError, match="backup"):
            taken_out(tmp_path / "damaged", tmp_path / f"out-{number}")


def test_in_the_clear_no_file_that_was_damaged_is_taken(tmp_path, files):
    archive.write(tmp_path / "backup", manifest(files), files, None)
    for number, data in enumerate(damages((tmp_path / "backup").read_bytes(), sealed=False)):
        (tmp_path / "damaged").write_bytes(data)
        try:
            taken_out(tmp_path / "damaged", tmp_path / f"out-{number}")
        except ArgumentError:
            continue
        for name, path in files.items():  # the byte was one of tar's own padding, or in the manifest's words
            assert (tmp_path / f"out-{number}" / name).read_bytes() == path.read_bytes()


def packed(path, members):
    with tarfile.open(path, "w") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_nothing_is_taken_out_that_the_manifest_does_not_name(tmp_path, files):
    one = manifest({"party.key": files["party.key"]})
    first = (tarfile.TarInfo("manifest.json"), one.encode())
    key = (tarfile.TarInfo("party.key"), b"secret key")
    link = tarfile.TarInfo("party.key")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    cases = {
        "does not name": [first, (tarfile.TarInfo("../elsewhere"), b"x"), key],
        "'party.key', which": [first, (link, b"")],
        "lacks party.key": [first],
        "must begin with manifest.json": [key, first],
        "is not what was saved": [first, (tarfile.TarInfo("party.key"), b"another key")],
    }
    for number, (words, members) in enumerate(cases.items()):
        packed(tmp_path / "file", members)
        with pytest.raises(ArgumentError, match=words):
            taken_out(tmp_path / "file", tmp_path / f"out-{number}")
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "file").write_bytes(b"no backup at all")
    with pytest.raises(ArgumentError, match="whole file that `fedbandit backup` made"):
        taken_out(tmp_path / "file", tmp_path / "out")


def test_manifests_of_others_are_refused():
    good = json.loads(Manifest("a", "silo", "t", "f", "p", "0", 0.0, {"x": Saved(1, "00")}).encode())
    assert Manifest.decode(json.dumps(good).encode()).files == {"x": Saved(1, "00")}
    for changes in ({"format": 2}, {"files": {"a/b": good["files"]["x"]}}, {"files": {"..": good["files"]["x"]}}):
        with pytest.raises(ArgumentError, match="backup"):
            Manifest.decode(json.dumps(good | changes).encode())
    for data in (b"", b"[]", b"{}", b'{"format": 1}'):
        with pytest.raises(ArgumentError, match="backup"):
            Manifest.decode(data)


def test_a_file_that_is_there_is_not_overwritten_and_a_failure_leaves_none(tmp_path, files):
    (tmp_path / "backup").write_bytes(b"older")
    with pytest.raises(ArgumentError, match="not overwritten"):
        archive.write(tmp_path / "backup", manifest(files), files, None)
    assert (tmp_path / "backup").read_bytes() == b"older"
    known = manifest(files)
    files["party.key"].unlink()
    with pytest.raises(FileNotFoundError):
        archive.write(tmp_path / "other", known, files, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "in"]
