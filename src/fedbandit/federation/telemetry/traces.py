"""OpenTelemetry's traces, where somebody has asked for them (`pip install 'fedbandit[otel]'`, `traces` in party.json).

Nothing of OpenTelemetry is imported before that, and a span costs a call that does nothing. A span has a name and
public numbers: never a person, features or a reward. That it is there, and how long it took, tells that somebody asked:
the collector must be the silo's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["on", "set_up", "span"]

_NOTHING: AbstractContextManager[Any] = nullcontext()
_start: Callable[..., AbstractContextManager[Any]] | None = None


def on() -> bool:
    """Whether spans go anywhere."""
    return _start is not None


def span(name: str, **numbers: str | int | float | bool) -> AbstractContextManager[Any]:
    """What happens inside the block, with when it began and ended; nothing while traces are off."""
    return _NOTHING if _start is None else _start(name, attributes=numbers)


def set_up(endpoint: str, **party: str) -> Callable[[], None]:
    """Send traces to the collector at this endpoint from now on. Returns what sends the last of them and stops."""
    global _start
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    named = {f"fedbandit.{name}": value for name, value in party.items()}
    provider = TracerProvider(resource=Resource.create({"service.name": "fedbandit", **named}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    _start = provider.get_tracer("fedbandit").start_as_current_span

    def stop() -> None:
        global _start
        _start = None
        provider.shutdown()

    return stop
