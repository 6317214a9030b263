"""Keeps a party in its federation: it joins, and joins again after every failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from fedbandit.federation.setup.party import PlanMismatch
from fedbandit.federation.telemetry.troubles import Troubles
from fedbandit.federation.wire.link import BrokerRefusal, Link
from fedbandit.federation.wire.refused import Refused

__all__ = ["Membership", "Worker"]

log = logging.getLogger(__name__)
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds until a party tries again to take part
STEADY = 2.0  # seconds without an error after which the last trouble counts as over


class Worker(Protocol):
    """What a party does while it is connected."""

    async def run(self, link: Link) -> None:
        """Work over this connection until cancelled."""
        ...

    @property
    def troubles(self) -> Troubles:
        """What keeps the party from working."""
        ...

    @property
    def refused(self) -> Refused:
        """The messages that were refused."""
        ...


class _Trouble(NamedTuple):
    """Why the party does not take part."""

    kind: str  # one of `troubles.KINDS`
    says: str


class Membership:
    """Keeps a party connected. A party whose plan differs from the others' ends; with `stay` it keeps running and
    reports that, but no longer takes part."""

    def __init__(
        self, worker: Worker, connect: Callable[[], Awaitable[Link]], broker: str, *, stay: bool = False
    ) -> None:
        self._worker, self._connect, self._broker, self._stay = worker, connect, broker, stay
        self._link: Link | None = None
        self._trouble: _Trouble | None = None

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self._link is not None and bool(self._link.client.is_connected)

    @property
    def troubles(self) -> Troubles:
        """What keeps the party from working as it should."""
        found = dict(self._worker.troubles)
        if self._link is None and self._trouble is None:
            found["broker"] = f"the broker at {self._broker} has not answered yet: nothing ticks until it does"
        if self._link is not None and self.connected and self._link.trouble is not None:
            found["streams"] = self._link.trouble
        return found if self._trouble is None else {**found, self._trouble.kind: self._trouble.says}

    @property
    def refusals(self) -> Mapping[str, int]:
        return self._worker.refused.reasons

    async def run(self) -> None:
        """Take part until cancelled."""
        wait = FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                await self._take_part()
            except Exception as error:
                if (mismatch := _mismatch(error)) is not None:
                    await self._mismatched(mismatch)
                kind = error.kind if isinstance(error, BrokerRefusal) else "broker"
                self._trouble = _Trouble(kind, f"taking part failed: {_reason(error)}")
                log.error("%s; trying again in %g s", self._trouble.says, wait, exc_info=error)
            wait = FIRST_WAIT if time.monotonic() - began > LONGEST_WAIT else wait
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)

    async def _take_part(self) -> None:
        link = self._link = await self._connect()
        working = asyncio.create_task(self._worker.run(link))
        try:
            done, _ = await asyncio.wait({working}, timeout=STEADY)
            if not done:
                self._trouble = None
            await working
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await link.close()

    async def _mismatched(self, mismatch: PlanMismatch) -> None:
        """End, or wait until somebody ends this process and starts it under the right plan."""
        if not self._stay:
            raise mismatch
        self._trouble = _Trouble("plan", f"refusing to take part: {mismatch}")
        log.error("%s; end this process and start it under the plan of the others", self._trouble.says)
        await asyncio.Event().wait()


def _mismatch(error: Exception) -> PlanMismatch | None:
    found: BaseException | None = error
    if isinstance(error, ExceptionGroup):
        found = error.subgroup(PlanMismatch)
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
    return found if isinstance(found, PlanMismatch) else None


def _reason(error: BaseException) -> str:
    """The error in words; of a group, its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
