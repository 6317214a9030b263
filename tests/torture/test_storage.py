"""Files that fail, are damaged, cut, removed, swapped or put back: what is lost is said, and nothing is drawn twice."""

import asyncio
import contextlib
import errno
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedbandit.federation.http.group import GroupCommit, StoreUnavailable
from fedbandit.federation.silo import book
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.store.database import COPY_AFTER, SqliteEngine
from fedbandit.federation.timing import Reading, Timing
from fedbandit.schedule import clock
from tests.federation.small import small_plan
from tests.torture.conftest import Tally
from tests.torture.crashes.conductor import Conductor, found
from tests.torture.crashes.plans import PLANS
from tests.torture.crashes.plants import UNASKED

pytestmark = pytest.mark.fire
START = 1_000_000.0
PLAN = small_plan(silos=1, rounds=4, trust="silo", schedule=clock(60.0), visits="private")
ACTIONS = [[1.0, 0.0], [0.6, 0.8]]
SECRET = b"s" * 32
PAGE = 4096


class Clock:
    """A clock that stands still until it is set."""

    now = START

    def read(self) -> Reading:
        return Reading(self.now, self.now, "one machine")


def opened(path: Path | str, clock_: Clock, **options: object) -> Silo:
    given = {"name": "silo-0", "secret": SECRET, "timing": Timing(start=START), "clock": clock_, **options}
    return Silo.open(path, PLAN, **given)  # type: ignore[arg-type]


def serve(silo: Silo, *rewards: float) -> list[tuple[str, float]]:
    """Users come and are rewarded; their ids and rewards, all acknowledged."""
    served = [(silo.decide(ACTIONS).id, reward) for reward in rewards]
    for decision, reward in served:
        assert silo.reward(decision, reward).counted
    return served


class Killed:
    """A silo's files as kill -9 leaves them: one release made, three rewards acknowledged in the open batch."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path / "killed" / "silo.db", Clock()
        self.path.parent.mkdir()
        with opened(path / "silo.db", self.clock) as silo:
            serve(silo, 0.1, 0.2)
            self.clock.now = START + 60
            silo.tick()
            self.served = serve(silo, 0.3, 0.4, 0.5)
            self.drawn = [release.drawn for release in silo.store.releases(1)]
            for file in path.glob("silo.db*"):
                shutil.copy(file, self.path.parent)
        (self.path.parent / "silo.db-shm").unlink()
        self.log = Path(f"{self.path}-wal")

    def check_whole(self) -> None:
        """Everything that was acknowledged is there, the release is the one that was drawn, and it goes on."""
        with opened(self.path, self.clock) as silo:
            assert sorted(reward for _, reward in silo.store.batch(1, 1)) == [0.3, 0.4, 0.5]
            assert [release.drawn for release in silo.store.releases(1)] == self.drawn
            assert len(book.entries(silo.store.ledger())) == 1
            assert all(silo.reward(*served).repeated for served in self.served)
            self.clock.now = START + 120
            assert silo.tick() == [1]

    def check_refused(self, words: str) -> None:
        """The party does not work with it, and says what to do."""
        with pytest.raises(ValueError, match=words):
            opened(self.path, self.clock)


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    return Killed(tmp_path)


def flip(path: Path, at: int, count: int = 8) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        found = file.read(count)
        file.seek(at)
        file.write(bytes(byte ^ 0xFF for byte in found))


def root_page(path: Path, table: str) -> int:
    connection = sqlite3.connect(path)
    ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    connection.close()
    return int(page)


def checkpointed(killed: Killed) -> None:
    """All of the log is in the database."""
    connection = sqlite3.connect(killed.path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def flip_header(killed: Killed) -> None:
    checkpointed(killed)
    flip(killed.path, 0)


def flip_table(table: str) -> Callable[[Killed], None]:
    def fault(killed: Killed) -> None:
        checkpointed(killed)
        flip(killed.path, (root_page(killed.path, table) - 1) * PAGE)

    return fault


def flip_ledger_text(killed: Killed) -> None:
    """One letter of an event, inside of a page that is otherwise in order."""
    checkpointed(killed)
    content = killed.path.read_bytes()
    killed.path.write_bytes(content.replace(b'"sync": 0', b'"sync": 9').replace(b'"sync":0', b'"sync":9'))
    assert killed.path.read_bytes() != content


def truncate_database(killed: Killed) -> None:
    checkpointed(killed)
    os.truncate(killed.path, killed.path.stat().st_size // 2)


def empty_database(killed: Killed) -> None:
    checkpointed(killed)
    os.truncate(killed.path, 0)


def text_instead(killed: Killed) -> None:
    checkpointed(killed)
    killed.path.write_text("this was a store once\n" * 1000)


def drop_table(table: str) -> Callable[[Killed], None]:
    def fault(killed: Killed) -> None:
        connection = sqlite3.connect(killed.path)
        connection.execute(f"DROP TABLE {table}")
        connection.commit()
        connection.close()

    return fault


def other_format(format_: str) -> Callable[[Killed], None]:
    def fault(killed: Killed) -> None:
        connection = sqlite3.connect(killed.path)
        connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (format_.encode(),))
        connection.commit()
        connection.close()

    return fault


REFUSED: dict[str, tuple[Callable[[Killed], None], str]] = {
    "flipped bytes in the header of the database": (flip_header, "damaged"),
    "flipped bytes in the ledger's page": (flip_table("ledger"), "damaged"),
    "flipped bytes in the releases' page": (flip_table("releases"), "damaged"),
    "flipped bytes in the page of values": (flip_table("states"), "damaged"),
    "flipped bytes in an entry of the ledger": (flip_ledger_text, "ledger"),
    "a database cut in half": (truncate_database, "damaged"),
    "another file in its place": (text_instead, "damaged"),
    "a dropped ledger": (drop_table("ledger"), "has lost ledger"),
    "a dropped table of rewards": (drop_table("rewarded"), "has lost rewarded"),
    "a store of a later format": (other_format("99"), "later version"),
    "a store of an earlier format": (other_format("3"), "was written by fedbandit"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_damaged_store_is_refused(killed: Killed, fault: str, tally: Tally) -> None:
    """With a text that says what is wrong and what to do."""
    damage, words = REFUSED[fault]
    damage(killed)
    killed.check_refused(words)
    tally("storage faults", 1)


# -- faults that do no harm -------------------------------------------------------------------------------------------


def torn_tail(killed: Killed) -> None:
    """A commit that never ended, behind what was acknowledged."""
    with killed.log.open("ab") as file:
        file.write(os.urandom(3000))


def half_a_frame(killed: Killed) -> None:
    content = killed.log.read_bytes()
    with killed.log.open("ab") as file:
        file.write(content[32 : 32 + 2000])


def stale_index(killed: Killed) -> None:
    Path(f"{killed.path}-shm").write_bytes(os.urandom(32768))


def no_counts(killed: Killed) -> None:
    Path(f"{killed.path}.count").unlink()


def counts_cut(killed: Killed) -> None:
    os.truncate(f"{killed.path}.count", 5)


def a_stale_lock(killed: Killed) -> None:
    Path(f"{killed.path}.lock").write_bytes(b"left by a process that was killed")


HARMLESS: dict[str, Callable[[Killed], None]] = {
    "rubbish after the end of the log": torn_tail,
    "half a frame after the end of the log": half_a_frame,
    "an index of the log from another life": stale_index,
    "a removed count of decisions": no_counts,
    "a count of decisions that is cut short": counts_cut,
    "a lock file left behind": a_stale_lock,
    "nothing but the kill": lambda killed: None,
}


@pytest.mark.parametrize("fault", HARMLESS)
def test_what_a_crash_may_leave_does_no_harm(killed: Killed, fault: str, tally: Tally) -> None:
    HARMLESS[fault](killed)
    killed.check_whole()
    tally("storage faults", 1)


# -- disks that fail --------------------------------------------------------------------------------------------------


class Disk:
    """A disk whose syncs fail for as long as it is told to."""

    failing = False

    def sync(self, file: int) -> None:
        if self.failing:
            raise OSError(errno.EIO, "the disk does not answer")
        os.fdatasync(file)


@pytest.mark.parametrize("times", [1, 3])
def test_a_failing_sync_acknowledges_nothing(tmp_path: Path, monkeypatch, tally: Tally, times: int) -> None:
    """Once or again and again: decisions go on, nobody is told that a reward is safe, and the retry is."""
    disk, clock_ = Disk(), Clock()
    monkeypatch.setattr(SqliteEngine.__init__, "__defaults__", (disk.sync,))

    async def put(silo: Silo, decision: str) -> object:
        group = GroupCommit(silo)
        try:
            return await group.put([silo.read(decision, 0.5)])
        finally:
            group.close()

    with opened(tmp_path / "silo.db", clock_) as silo:
        for _ in range(times):
            disk.failing, decision = True, silo.decide(ACTIONS).id
            with pytest.raises(StoreUnavailable, match="does not answer"):
                asyncio.run(put(silo, decision))
            assert silo.decide(ACTIONS).action in (0, 1)
            disk.failing = False
            log = (tmp_path / "silo.db-wal").stat().st_size
            asyncio.run(put(silo, decision))
            assert (tmp_path / "silo.db-wal").stat().st_size < log  # what the failed sync may have lost is elsewhere
    with opened(tmp_path / "silo.db", clock_) as silo:
        assert [reward for _, reward in silo.store.batch(1, 0)] == [0.5] * times
    tally("storage faults", 1)


@contextlib.contextmanager
def full_disk(most: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes (RLIMIT_FSIZE; the signal that comes with it ignored)."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, tally: Tally) -> None:
    """Rewards are refused and decisions go on; with room again, all is as if it had never been full."""
    clock_ = Clock()
    with opened(tmp_path / "silo.db", clock_) as silo:
        serve(silo, 0.1)
        decisions = [silo.decide(ACTIONS).id for _ in range(3)]
        with full_disk((tmp_path / "silo.db-wal").stat().st_size):
            for decision in decisions:
                with pytest.raises(sqlite3.OperationalError):
                    silo.reward(decision, 0.9)
            assert silo.decide(ACTIONS).action in (0, 1)
        assert [silo.reward(decision, 0.9).repeated for decision in decisions] == [False] * 3
        assert sorted(reward for _, reward in silo.store.batch(1, 0)) == [0.1, 0.9, 0.9, 0.9]
    tally("storage faults", 1)


def test_a_full_disk_at_the_tick_draws_nothing_and_then_once(tmp_path: Path, tally: Tally) -> None:
    clock_ = Clock()
    with opened(tmp_path / "silo.db", clock_) as silo:
        serve(silo, 0.1)
        clock_.now = START + 60
        with full_disk((tmp_path / "silo.db-wal").stat().st_size), pytest.raises(sqlite3.OperationalError):
            silo.tick()
        assert not silo.store.ledger()
        assert silo.tick() == [0]
        assert len(silo.store.ledger()) == 1
    tally("storage faults", 1)


def test_a_full_disk_at_the_checkpoint_is_tried_again(tmp_path: Path, tally: Tally) -> None:
    """Raw rows stay in the log until there is room, and the silo knows that they do."""
    clock_ = Clock()
    with opened(tmp_path / "silo.db", clock_) as silo:
        serve(silo, *[0.1] * (COPY_AFTER // 2))  # so few that nothing was copied into the database yet
        with full_disk((tmp_path / "silo.db").stat().st_size), contextlib.suppress(sqlite3.OperationalError):
            assert not silo.store.engine.forget()
        assert silo.store.engine.forget()
        assert (tmp_path / "silo.db-wal").stat().st_size == 0
        assert len(silo.store.batch(1, 0)) == COPY_AFTER // 2
    tally("storage faults", 1)


def test_a_reader_in_the_way_delays_forgetting_and_nothing_else(tmp_path: Path, tally: Tally) -> None:
    clock_ = Clock()
    with opened(tmp_path / "silo.db", clock_) as silo:
        serve(silo, 0.1)
        silo.store.engine._connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        reader = sqlite3.connect(tmp_path / "silo.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM raw_rows").fetchall()
        clock_.now = START + 60
        assert silo.ticker.release() == [0]
        assert not silo.ticker.tidy()
        serve(silo, 0.2)
        reader.close()
        assert silo.ticker.tidy()
        assert (tmp_path / "silo.db-wal").stat().st_size == 0
    tally("storage faults", 1)


def test_a_file_that_may_only_be_read(killed: Killed, tally: Tally) -> None:
    """As somebody else's file: the process may not write (root may always, so the file is opened as for reading)."""
    before = killed.path.read_bytes()
    script = (
        "import os, sys, pathlib; os.setgid(65534); os.setuid(65534)\n"
        "from tests.torture.test_storage import Clock, opened\n"
        "opened(pathlib.Path(sys.argv[1]), Clock())"
    )
    for file in (killed.path, *killed.path.parent.glob("silo.db*"), killed.path.parent):
        file.chmod(0o555)
    if os.getuid() != 0:
        with pytest.raises((OSError, sqlite3.OperationalError)):
            opened(killed.path, killed.clock)
    else:
        ended = subprocess.run([sys.executable, "-c", script, str(killed.path)], capture_output=True, text=True)
        assert ended.returncode != 0
    assert killed.path.read_bytes() == before
    tally("storage faults", 1)


# -- stores in the wrong hands ----------------------------------------------------------------------------------------


def test_two_processes_on_one_store(killed: Killed, tally: Tally) -> None:
    with opened(killed.path, killed.clock):
        killed.check_refused("in use by another process")
    tally("storage faults", 1)


def test_the_store_of_another_silo(killed: Killed, tally: Tally) -> None:
    with pytest.raises(ValueError, match="secret must be the one this store began with"):
        opened(killed.path, killed.clock, secret=b"t" * 32)
    tally("storage faults", 1)


def test_the_store_of_another_plan(killed: Killed, tally: Tally) -> None:
    other = PLAN.changed(rounds=5)
    with pytest.raises(ValueError, match="a new plan begins a new term"):
        Silo.open(killed.path, other, name="silo-0", secret=SECRET, timing=Timing(start=START), clock=killed.clock)
    tally("storage faults", 1)


# -- stores that were put back ----------------------------------------------------------------------------------------


def put_back(run: Conductor, name: str, parts: tuple[str, ...]) -> None:
    """These files as they were after the first sync; the index of the log, and any other file of the store, is gone."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{run.store(name)}{suffix}").unlink(missing_ok=True)
    for suffix in parts:
        shutil.copy(f"{run.store(name)}{suffix}.old", f"{run.store(name)}{suffix}")


def said_after_putting_back(folder: Path, name: str, parts: tuple[str, ...], planted: str = "") -> str:
    """Two syncs, an old store for one party, users for a third: what that party says. Nothing may have been told in
    two ways by then."""
    homes = found(folder / "homes", PLANS["secure-sum"])
    run = Conductor(folder / "run", PLANS["secure-sum"], homes, planted=planted)
    try:
        run.begin()
        run.sync(0)
        for suffix in ("", "-wal"):
            shutil.copy(f"{run.store(name)}{suffix}", f"{run.store(name)}{suffix}.old")
        run.sync(1)
        run.restart(name, lambda: put_back(run, name, parts))
        run.sync(2)
        problem = run.ask(name, "problem")
    finally:
        run.stop()
    for kind in ("release", "mixed", "model"):
        versions = Counter(key for key, _ in {(m.id, m.data) for m in run.crossed if m.id.startswith(kind)})
        twice = [key for key, count in versions.items() if count > 1 and kind != "model"]
        assert not twice, f"{twice} were sent in two versions"
    return str(problem or "")


COPIES: dict[str, tuple[str, ...]] = {"an old copy": ("", "-wal"), "nothing": ()}


@pytest.mark.parametrize("parts", COPIES)
@pytest.mark.parametrize("name", ["silo-0", "mixer", "analyzer"])
def test_a_store_that_was_put_back_draws_nothing_again(tmp_path: Path, name: str, parts: str, tally: Tally) -> None:
    """The others have seen the party further than its store says: it refuses to go on, and says what to do."""
    said = said_after_putting_back(tmp_path, name, COPIES[parts])
    assert "old copy" in said
    assert "put the newest copy in its place" in said.lower()
    tally("storage faults", 1)


def test_a_silo_that_does_not_ask_is_caught(tmp_path: Path, tally: Tally) -> None:
    """A planted bug: with an old copy it draws a release a second time."""
    with pytest.raises(AssertionError, match="two versions"):
        said_after_putting_back(tmp_path, "silo-0", COPIES["an old copy"], planted=UNASKED)
    tally("planted bugs caught", 1)
