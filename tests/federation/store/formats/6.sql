-- Tables of format 6, as fedbandit after 0.3.0 made them; names of types are filled in.
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
