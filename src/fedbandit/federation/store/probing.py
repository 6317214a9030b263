"""Does a store take what is written? Something that says nothing is written, another thing each time: SQLite does not
write what is there already."""

from __future__ import annotations

import secrets

from fedbandit.federation.store.database import Engine

__all__ = ["probe"]


def probe(engine: Engine) -> None:
    """Write; a store that is full, or away, raises."""
    with engine.transaction(durable=False) as sql:
        sql.all(
            "INSERT INTO states (term, name, value) VALUES (0, 'probe', ?)"
            " ON CONFLICT (term, name) DO UPDATE SET value = excluded.value",
            (secrets.token_bytes(8),),
        )
