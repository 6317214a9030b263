"""OpenTelemetry traces, if they are switched on (`pip install 'fedbandit[otel]'`, `traces` in party.json).

While they are off, nothing of OpenTelemetry is imported, and a span costs a call that does nothing. A span has a name
and public numbers: never a person, features or a reward. But the existence and the duration of a span reveal that
somebody asked, so the collector must be the silo's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["on", "set_up", "span"]

_NOTHING: AbstractContextManager[Any] = nullcontext()
_start: Callable[..., AbstractContextManager[Any]] | None = None


def on() -> bool:
    """Whether spans are sent."""
    return _start is not None


def span(name: str, **numbers: str | int | float | bool) -> AbstractContextManager[Any]:
    """A context manager that records the begin and the end of its block; it does nothing while traces are off."""
    return _NOTHING if _start is None else _start(name, attributes=numbers)


def set_up(endpoint: str, **party: str) -> Callable[[], None]:
    """Send traces to the collector at this endpoint from now on. Returns a function that sends the rest and stops."""
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
