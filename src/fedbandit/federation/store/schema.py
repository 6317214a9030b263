"""The tables of a party. Users' raw data are in `raw_rows` only, and are deleted when their batch is released.

The users who were counted in one transaction are one raw row: they are written, read and deleted together. Decisions
that were issued one after the other, so that each nonce is the last one plus one, and rewarded together are one row of
`rewarded`: it has the first nonce, and the digests of all of them. Sums of what a silo has seen stay in `own_sums`, and
in the silo.

The bytes of a release are in `contents`, and do not change. The state of the release, in `releases`, changes four
times: if it were in the same row as the bytes, SQLite would write all of them again each time.
"""

from __future__ import annotations

import re

__all__ = ["ADDED", "EARLIER", "FORMAT", "TABLES", "tables"]

FORMAT = "7"
EARLIER = {  # by format: the version
    "1": "0.1.0",
    "2": "0.2.0",
    **dict.fromkeys("34", "between 0.2.0 and 0.3.0"),
    "5": "0.3.0",
    "6": "after 0.3.0",
}
ADDED = {  # by format: the tables that the next format adds
    "3": ("opted_out", "own_sums"),
    "4": ("last_counted",),
    "5": ("contents",),
}

_TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value {blob} NOT NULL);
CREATE TABLE IF NOT EXISTS terms (term {int} PRIMARY KEY, plan_hash TEXT NOT NULL, plan TEXT NOT NULL,
    started {float} NOT NULL, open_sync {int} NOT NULL, decisions {int} NOT NULL, unkeyed {int} NOT NULL,
    seated {int} NOT NULL);
CREATE TABLE IF NOT EXISTS rewarded (nonce {blob} PRIMARY KEY, term {int} NOT NULL, sync {int} NOT NULL,
    state TEXT NOT NULL, digest {blob} NOT NULL) {clustered};
CREATE TABLE IF NOT EXISTS raw_rows (term {int} NOT NULL, sync {int} NOT NULL, users {int} NOT NULL,
    features {blob} NOT NULL, rewards {blob} NOT NULL);
CREATE INDEX IF NOT EXISTS raw_rows_by_sync ON raw_rows (term, sync);
CREATE TABLE IF NOT EXISTS participants (term {int} NOT NULL, person {blob} NOT NULL, times {int} NOT NULL,
    PRIMARY KEY (term, person));
CREATE TABLE IF NOT EXISTS last_counted (term {int} NOT NULL, person {blob} NOT NULL, sync {int} NOT NULL,
    PRIMARY KEY (term, person));
CREATE TABLE IF NOT EXISTS seats (term {int} NOT NULL, person {blob} NOT NULL, times {int} NOT NULL,
    PRIMARY KEY (term, person));
CREATE TABLE IF NOT EXISTS opted_out (term {int} NOT NULL, person {blob} NOT NULL, PRIMARY KEY (term, person));
CREATE TABLE IF NOT EXISTS own_sums (term {int} NOT NULL, part {int} NOT NULL, visits {int} NOT NULL,
    squares {float} NOT NULL, value {blob} NOT NULL, PRIMARY KEY (term, part));
CREATE TABLE IF NOT EXISTS releases (term {int} NOT NULL, sync {int} NOT NULL, state TEXT NOT NULL,
    users {int} NOT NULL, closed {float} NOT NULL, PRIMARY KEY (term, sync));
CREATE INDEX IF NOT EXISTS releases_by_state ON releases (term, state, sync);
CREATE TABLE IF NOT EXISTS contents (term {int} NOT NULL, sync {int} NOT NULL, drawn {blob} NOT NULL, sent {blob},
    sealed {blob}, PRIMARY KEY (term, sync));
CREATE TABLE IF NOT EXISTS ledger (number {int} PRIMARY KEY, hash TEXT NOT NULL, previous TEXT NOT NULL,
    event TEXT NOT NULL, signature TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS states (term {int} NOT NULL, name TEXT NOT NULL, value {blob} NOT NULL,
    PRIMARY KEY (term, name));
CREATE TABLE IF NOT EXISTS models (term {int} NOT NULL, sync {int} NOT NULL, value {blob} NOT NULL,
    PRIMARY KEY (term, sync));
CREATE TABLE IF NOT EXISTS action_sets (name TEXT PRIMARY KEY, value {blob} NOT NULL);
CREATE TABLE IF NOT EXISTS inbox (sync {int} NOT NULL, sender TEXT NOT NULL, value {blob} NOT NULL,
    PRIMARY KEY (sync, sender));
CREATE TABLE IF NOT EXISTS syncs (sync {int} PRIMARY KEY, state TEXT NOT NULL, cohort TEXT NOT NULL, value {blob})
"""

TABLES = tuple(re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", _TABLES))


def tables(blob: str, float_: str, int_: str, clustered: str) -> list[str]:
    """The CREATE statements, with a database's names for bytes, doubles, 64-bit integers, and tables stored in the
    order of their key."""
    names = {"blob": blob, "float": float_, "int": int_, "clustered": clustered}
    return [statement.strip().format(**names) for statement in _TABLES.strip().split(";")]
