"""The planner's calls over HTTP. Simulator and audit are loaded on demand, or in the background."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from fedbandit import _words
from fedbandit._validate import ArgumentError
from fedbandit.planner.best import ALONE, CANDIDATES, Recommendation
from fedbandit.presets import TRUST_OF
from fedbandit.protocol.trust import trust
from fedbandit.web.planner.answer import advised, answer, budgets, quickly_advised
from fedbandit.web.planner.asked import CHOSEN, DEFAULTS, consortium_of
from fedbandit.web.server import Calls, EventStream, PageServer, Reply, Visit, as_json

__all__ = ["planner_server"]

TEXT = "text/plain; charset=utf-8"
WARM_UP = 1.0  # seconds until the compiler is loaded, so that it does not delay the first page


def planner_server(host: str = "127.0.0.1", port: int = 0) -> PageServer:
    """A server for the planner. It loads the simulator in the background, so that the page is there at once."""
    server = PageServer(host, port, "planner.html", _calls())
    later = threading.Timer(WARM_UP, _warm_up)
    later.daemon = True
    later.start()
    return server


def _warm_up() -> None:
    """Load the simulator if it is installed; if it is not, a request for a simulation says so."""
    with contextlib.suppress(ModuleNotFoundError):
        from fedbandit.web.planner.playing import warm_up

        warm_up()


def _calls() -> Calls:
    return {
        "/api/form": _form,
        "/api/plan": lambda visit: as_json(answer(quickly_advised(consortium_of(visit.query)))),
        "/api/refined": lambda visit: as_json(answer(advised(consortium_of(visit.query)))),
        "/api/budgets": lambda visit: as_json(budgets(consortium_of(visit.query))),
        "/api/simulation": _simulation,
        "/api/plan.toml": _toml,
        "/api/plan.py": _python,
        "/api/certificate.html": _certificate,
    }


def _form(visit: Visit) -> Reply:
    """What the form offers: the defaults, and whom people may be asked to trust, from nobody to the analyzer.

    Trust models that ask people to trust the same parties are one choice.
    """
    found = {trust(TRUST_OF[name]).faith: trust(TRUST_OF[name]) for name in CANDIDATES}
    trusts = [{"name": one.name, "who": one.who} for _, one in sorted(found.items())]
    return as_json({"defaults": DEFAULTS, "trusts": trusts})


def _simulation(visit: Visit) -> EventStream:
    return EventStream(_told(_played(advised(consortium_of(visit.query)), visit)))


def _played(advice: Recommendation, visit: Visit) -> Iterator[dict[str, Any]]:
    from fedbandit.web.planner.playing import plays

    yield from plays(advice, visit.gone)


def _told(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The events, with an error turned into a last event that says why nothing is played."""
    try:
        yield from events
    except ArgumentError as error:
        yield {"kind": "refused", "reason": str(error)}
    except ModuleNotFoundError as error:
        yield {"kind": "refused", "reason": _words.to_install(error) or str(error)}


def _toml(visit: Visit) -> Reply:
    from fedbandit.web.planner.copies import as_toml, chosen

    consortium = consortium_of(visit.query)
    plan = chosen(advised(consortium), visit.query.get(CHOSEN))
    return Reply(as_toml(plan, consortium).encode(), TEXT)


def _python(visit: Visit) -> Reply:
    from fedbandit.web.planner.copies import as_python, chosen

    consortium = consortium_of(visit.query)
    advice = advised(consortium)
    chosen(advice, visit.query.get(CHOSEN))
    return Reply(as_python(consortium, visit.query.get(CHOSEN) or advice.options[0].name).encode(), TEXT)


def _certificate(visit: Visit) -> Reply:
    from fedbandit.web.planner.copies import certified, chosen

    advice = advised(consortium_of(visit.query))
    plan = chosen(advice, visit.query.get(CHOSEN))
    name = visit.query.get(CHOSEN) or (advice.options[0].name if advice.options else ALONE)
    disposition = f'attachment; filename="{name}.certificate.html"'
    return Reply(certified(plan).encode(), "text/html; charset=utf-8", headers={"content-disposition": disposition})
