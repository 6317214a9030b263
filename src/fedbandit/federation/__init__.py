"""The live federation: serving silos, a mixer and an analyzer, connected by NATS JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit.federation.silo.serving import Silo

__all__ = ["Silo"]


def __getattr__(name: str) -> Any:
    """Import `Silo` on first use: a live silo needs the packages of the extra `live`."""
    if name == "Silo":
        from fedbandit.federation.silo.serving import Silo

        return Silo
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
