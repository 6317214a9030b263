"""What a mixer or an analyzer serves over HTTP: whether it is alive, whether it works, its metrics and its page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from fedbandit.federation.board.keeper_board import KeeperBoard
from fedbandit.federation.http import schemas
from fedbandit.federation.http.app import App
from fedbandit.federation.http.families import METRICS_MEDIA, Dates, Machine, PartyView, gauge, page, party_families
from fedbandit.federation.http.group import in_thread
from fedbandit.federation.http.routes import Route, page_routes
from fedbandit.federation.http.service import Connection, StoreCheck
from fedbandit.federation.setup.party import Party
from fedbandit.federation.store import SyncStore
from fedbandit.federation.syncs.keeper import SyncKeeper
from fedbandit.federation.telemetry.troubles import Troubles, first

__all__ = ["KeeperService", "Keeps", "create_keeper_app"]


class Keeps(Protocol):
    """The owner of the keeper. There is none until the broker has answered, and a new one after every reconnection."""

    @property
    def keeper(self) -> SyncKeeper | None: ...


class KeeperService:
    """The calls of one mixer or analyzer."""

    def __init__(
        self, keeps: Keeps, party: Party, store: SyncStore, connection: Connection, machine: Machine | None = None
    ) -> None:
        self._keeps, self._party, self._store, self._connection = keeps, party, store, connection
        self._machine = machine or Machine()
        self._check = StoreCheck(store.engine)
        self._dates = dates = Dates(party.agreement.plan, party.agreement.timing)
        role = party.public.role
        self._board = KeeperBoard(store, party.roll, party.name, role, dates.of, dates.deadline)

    async def health(self) -> schemas.Health:
        """Say that the process is alive, and whether the term is still running."""
        keeper, syncs = self._keeps.keeper, len(self._party.agreement.plan.ticks)
        ended = keeper is not None and keeper.progress.last >= syncs - 1
        return schemas.Health("ok", "ended" if ended else "running")

    async def readiness(self) -> schemas.Readiness | schemas.NotReady:
        """Say whether syncs can be closed now."""
        troubles = await self._troubles()
        kind = schemas.NotReady if troubles else schemas.Readiness
        return kind(not troubles, self._connection.connected, first(troubles), dict(troubles))

    async def metrics(self) -> bytes:
        """Metrics for Prometheus. They are served even if the store fails."""
        troubles, keeper = await self._troubles(), self._keeps.keeper
        works, agreement = "store" not in troubles, self._party.agreement
        view = PartyView(
            self._party.name,
            self._party.public.role,
            agreement.plan,
            self._connection.connected,
            works,
            troubles,
            self._connection.refusals,
            self._dates,
            None if keeper is None else keeper.progress.last + 1,
            self._machine,
        )
        waited = keeper.waiting_for if keeper is not None and works else ()
        return page([*party_families(view), *([] if keeper is None else _families(keeper, waited, self._dates))])

    async def board(self) -> bytes:
        """The data of the party's page: only what is released anyway."""
        troubles, keeper, connection = await self._troubles(), self._keeps.keeper, self._connection
        asked = None if keeper is None or "store" in troubles else keeper  # the store knows which silos are missing

        def read() -> dict[str, Any]:
            return self._board.read(
                troubles=troubles,
                connected=connection.connected,
                waiting_for=None if asked is None else asked.waiting_for,
                elsewhere=0 if keeper is None else len(keeper.elsewhere),
                refusals=connection.refusals,
                machine=self._machine.values(),
            )

        return msgspec.json.encode(await in_thread(read))

    async def _troubles(self) -> Troubles:
        """What keeps the party, including its store, from working. The store is tested by writing to it."""
        troubles = dict(self._connection.troubles)
        if not self._connection.connected and "broker" not in troubles:
            troubles["broker"] = "the broker does not answer: nothing comes in, nothing is sent"
        why = await self._check.trouble()
        return troubles if why is None else {**troubles, "store": why}


def create_keeper_app(service: KeeperService, token: str) -> App:
    """The application of a mixer or an analyzer. As at a silo, metrics need the token."""
    routes = [
        Route("GET", "/healthz", service.health, token=False),
        Route("GET", "/readyz", service.readiness, token=False),
        Route("GET", "/metrics", service.metrics, media=METRICS_MEDIA),
        *page_routes(service.board),
    ]
    return App(routes, token)


def _families(keeper: SyncKeeper, waited: tuple[str, ...], dates: Dates) -> Iterator[Metric]:
    done = keeper.progress
    for name, text, value in (
        ("syncs_closed", "Syncs that are over", done.closed),
        ("syncs_skipped", "Syncs that were skipped: too few silos", done.skipped),
        ("syncs_given_up", "Syncs whose result was lost with a store", done.given_up),
    ):
        yield CounterMetricFamily(f"fedbandit_{name}", text, value=value)
    age = dates.since(done.last) if done.last_at is None else time.monotonic() - done.last_at
    if age is not None:
        yield gauge("last_sync_age_seconds", "Seconds since the last sync was closed, or since its tick", age)
    yield gauge("silos", "Silos of the plan", keeper.plan.silos)
    yield gauge("cohort", "Silos that a sync needs", keeper.plan.smallest_cohort)
    yield gauge("silos_present", "Silos in the last sync", done.present)
    text = "Parties whose last message was under another plan"
    yield gauge("parties_under_another_plan", text, len(keeper.elsewhere))
    yield _by_silo("silo_missed_in_a_row", "Syncs without this silo since it was last in one", done.missed)
    waiting = {name: int(name in waited) for name in keeper.agreement.silos}
    yield _by_silo("silo_waited_for", "1 if nothing has come from this silo for the sync that is due", waiting)


def _by_silo(name: str, text: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"fedbandit_{name}", text, labels=["silo"])
    for silo, value in values.items():
        family.add_metric([silo], value)
    return family
