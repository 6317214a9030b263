"""A silo's own log of its decisions: the offered actions, the chosen one, its probability, and its reward.

It is kept only if somebody asks for it, in a separate file on the silo's machine, and nothing ever sends it. It holds
raw data of people for longer than their batch is open; that is why entries are deleted after some days. It promises
nothing: entries of the last second may be lost in a crash, and decisions go on if the log cannot be written.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedbandit import _validate
from fedbandit._arrays import Floats
from fedbandit.bandit.linucb import Model
from fedbandit.federation.states import DecisionState
from fedbandit.federation.store.rewards import Reward, Verdict
from fedbandit.federation.timing import DAY
from fedbandit.plan import Plan

if TYPE_CHECKING:
    import polars as pl

__all__ = ["KEPT_DAYS", "DecisionLog"]

log = logging.getLogger(__name__)
KEPT_DAYS = 90.0
AT_ONCE = 128  # entries that are written together
LONGEST = 0.5  # seconds that an entry waits for others
LOOKS = 24  # how often old entries are deleted, within the days that an entry is kept
KEY_CHARACTERS = 16  # the first characters of a decision id: its nonce, in base64
WAIT = 10.0  # seconds to wait for a file that another worker is writing
_TABLES = """
CREATE TABLE IF NOT EXISTS decisions (key TEXT PRIMARY KEY, at REAL NOT NULL, plan TEXT NOT NULL,
    model INTEGER NOT NULL, rows BLOB NOT NULL, arms INTEGER NOT NULL, action INTEGER NOT NULL, own INTEGER NOT NULL,
    propensity REAL, probabilities BLOB NOT NULL, allowed TEXT, record TEXT) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS decisions_by_time ON decisions (at);
CREATE TABLE IF NOT EXISTS rewards (key TEXT PRIMARY KEY, at REAL NOT NULL, reward REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS models (plan TEXT NOT NULL, version INTEGER NOT NULL, theta BLOB NOT NULL,
    root BLOB NOT NULL, radius REAL NOT NULL, policy TEXT NOT NULL, PRIMARY KEY (plan, version));
"""
_DECISION = "INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_REWARD = "INSERT OR IGNORE INTO rewards VALUES (?, ?, ?)"
_MODEL = "INSERT OR IGNORE INTO models VALUES (?, ?, ?, ?, ?, ?)"
Statement = tuple[str, tuple[Any, ...]]


class DecisionLog:
    """Decisions, rewards and models of one silo, for `days` days. Safe to use from several threads and processes."""

    def __init__(self, path: str | Path, days: float = KEPT_DAYS) -> None:
        self.path, self._kept = Path(path), _validate.positive("days", days) * DAY
        self._lock = threading.Lock()
        self._waiting: list[Statement] = []
        self._timer: threading.Timer | None = None
        self._looked = -math.inf  # when old entries were last deleted, by the silo's clock
        self._plan = ""  # the hash of the plan of the current model
        self._connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=WAIT)
        for pragma in ("journal_mode = WAL", "synchronous = OFF", "secure_delete = ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(_TABLES)
        self.path.chmod(0o600)

    def decided(
        self,
        decision: str,
        at: float,
        model: int,
        rows: Floats,
        action: int,
        propensity: float | None,
        probabilities: Floats,
        allowed: Sequence[int] | None = None,
        *,
        own: bool = False,
        record: str | None = None,
    ) -> None:
        """Log a decision among `rows` (arms, dim). `probabilities` are the policy's, one per action; `propensity` is
        the probability of the action that was played, None if nobody knows it. `own` says that the application chose,
        not the policy. `record` is the raw record that the rows were made from, as JSON."""
        self.expire(at)
        self._add(
            _DECISION,
            (
                decision[:KEY_CHARACTERS],
                at,
                self._plan,
                model,
                rows.tobytes(),
                len(rows),
                action,
                own,
                propensity,
                probabilities.tobytes(),
                None if allowed is None else json.dumps([int(one) for one in allowed]),
                record,
            ),
        )

    def rewarded(self, rewards: Sequence[Reward], verdicts: Sequence[Verdict], at: float) -> None:
        """Log the rewards that were accepted, whether or not they count in a batch."""
        for reward, verdict in zip(rewards, verdicts, strict=True):
            if not (verdict.repeated or verdict.conflict or verdict.state is DecisionState.EXPIRED):
                key = base64.urlsafe_b64encode(reward.nonce).decode()
                self._add(_REWARD, (key, at, reward.reward))

    def model(self, version: int, model: Model, plan: Plan) -> None:
        """Log the model that decides from now on. It is public."""
        self._plan = plan.hash
        policy = json.dumps(plan.policy.as_dict())
        values = (plan.hash, version, model.theta.tobytes(), model.root.tobytes(), float(model.radius), policy)
        self._add(_MODEL, values)

    def flush(self) -> None:
        """Write the waiting entries to the file."""
        with self._lock:
            self._write()

    def expire(self, now: float) -> None:
        """Delete decisions and rewards that are older than the days kept; do nothing if that was done recently."""
        if abs(now - self._looked) < self._kept / LOOKS:
            return
        self._looked, old = now, now - self._kept
        with self._lock:
            for table in ("decisions", "rewards"):
                self._waiting.append((f"DELETE FROM {table} WHERE at < ?", (old,)))
            self._write()

    def frame(self) -> pl.DataFrame:
        """One row per decision, oldest first; `reward` is null if none has come."""
        import polars as pl  # imported late: a silo that only serves does not need it

        self.flush()
        query = (
            "SELECT d.key, d.at, d.plan, d.model, d.rows, d.arms, d.action, d.own, d.propensity, d.probabilities,"
            " d.allowed, d.record, r.reward, r.at FROM decisions d LEFT JOIN rewards r USING (key) ORDER BY d.at, d.key"
        )
        rows = [_plain(row) for row in self._connection.execute(query)]
        return pl.DataFrame(rows, schema=_columns(pl), orient="row")

    def models(self) -> pl.DataFrame:
        """One row per version of the model, in the order in which they came: its parameters, and the policy that used
        it. Every term of the silo begins with version 0 again."""
        import polars as pl

        self.flush()
        query = "SELECT plan, version, theta, root, radius, policy FROM models ORDER BY rowid"
        rows = [
            (plan, version, _floats(theta), _floats(root), radius, policy)
            for plan, version, theta, root, radius, policy in self._connection.execute(query)
        ]
        numbers, kinds = pl.List(pl.Float64), dict[str, Any](plan=pl.String, version=pl.Int64)
        kinds |= {"theta": numbers, "root": numbers, "radius": pl.Float64}
        return pl.DataFrame(rows, schema={**kinds, "policy": pl.String}, orient="row")

    def export(self, folder: str | Path) -> Path:
        """Write decisions.parquet and models.parquet, and return the folder. They hold the same raw data as the log."""
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        where.chmod(0o700)
        self.frame().write_parquet(where / "decisions.parquet")
        self.models().write_parquet(where / "models.parquet")
        return where

    def close(self) -> None:
        with self._lock:
            self._write()
            self._connection.close()

    def _add(self, statement: str, values: tuple[Any, ...]) -> None:
        with self._lock:
            self._waiting.append((statement, values))
            if len(self._waiting) >= AT_ONCE:
                self._write()
            elif self._timer is None:
                self._timer = threading.Timer(LONGEST, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def _write(self) -> None:
        """Write the waiting entries in one transaction; if that fails, they are lost, and the process logs an error."""
        waiting, self._waiting = self._waiting, []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not waiting:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in waiting:
                self._connection.execute(statement, values)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            log.error("%d entries of the decision log are lost: %s", len(waiting), error)
            if self._connection.in_transaction:
                self._connection.rollback()


def _floats(blob: bytes) -> list[float]:
    return [float(value) for value in np.frombuffer(blob)]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    key, at, plan, model, rows, arms, action, own, propensity, probabilities, *rest = row
    allowed, record, reward, rewarded = rest
    features = np.frombuffer(rows).reshape(arms, -1).tolist()
    subset = None if allowed is None else json.loads(allowed)
    chosen = (features, action, bool(own), propensity, _floats(probabilities), subset)
    names = None if record is None else [one["id"] for one in json.loads(record)["actions"]]
    return key, at, plan, model, *chosen, record, names, reward, rewarded


def _columns(pl: Any) -> dict[str, Any]:
    return {
        "decision": pl.String,
        "at": pl.Float64,
        "plan": pl.String,
        "model": pl.Int64,
        "rows": pl.List(pl.List(pl.Float64)),
        "action": pl.Int64,
        "own": pl.Boolean,
        "propensity": pl.Float64,
        "probabilities": pl.List(pl.Float64),
        "allowed": pl.List(pl.Int64),
        "record": pl.String,
        "names": pl.List(pl.String),
        "reward": pl.Float64,
        "rewarded_at": pl.Float64,
    }
