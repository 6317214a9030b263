"""Taking messages from a durable consumer, one request per message.

Two things in a message are chosen by its sender and must not be trusted here. One is its headers: the reply subject,
which the server sets, tells a stored message from the server's own answers; a header `Status` does not. The other is
its length: across accounts, the server takes an empty message for the end of an answer, so the rest of the same answer
would be lost. With one message per answer, there is no rest.
"""

from __future__ import annotations

import json
import time
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from fedbandit.federation.wire.subjects import ACK, Consumer, taking

__all__ = ["SafeClient", "Taker", "is_stored"]

NOTHING = ("404", "408")  # the server's codes for: there is no message; none came in time
LINGER = 0.8  # share of the waiting time after which the server says that nothing came


class SafeClient(Client):
    """A client that no header stops. If nats-py cannot parse a header, it stops reading, and so ends the connection."""

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            parsed: dict[str, str] | None = await super()._process_headers(headers)
        except Exception:  # deliberately broad: anybody's bytes, and headers of stored messages are never used
            return None
        return parsed


class Taker:
    """Takes messages from one consumer, in order. `wait` is how many seconds it waits for an answer."""

    def __init__(self, client: Client, consumer: Consumer, wait: float) -> None:
        self._client, self._subject, self._wait = client, taking(consumer), wait
        self._answers: Subscription | None = None

    async def take(self, most: int) -> list[Msg]:
        """The messages that are there, at most `most`; an empty list if none came in time. NatsTimeout if the server
        does not even say that none came."""
        answers = self._answers = self._answers or await self._client.subscribe(self._client.new_inbox())
        taken: list[Msg] = []
        if answers.pending_msgs == 0:  # otherwise a late answer to an earlier request comes next
            await self._ask(answers, 1, {"expires": int(LINGER * self._wait * 1e9)})
        await self._collect(answers, 1, taken)
        if taken:
            more = min(most - 1, _available(taken[0], most))
            try:
                await self._ask(answers, more, {"no_wait": True})
                await self._collect(answers, more, taken)
            except NatsError:  # messages that have come must not wait for others
                return taken
        return taken

    async def close(self) -> None:
        if self._answers is not None and not self._client.is_closed:
            await self._answers.unsubscribe()

    async def _ask(self, answers: Subscription, count: int, options: dict[str, Any]) -> None:
        if not self._client.is_connected:  # if sent later, it would take a message that nobody waits for
            raise NatsTimeout
        for _ in range(count):
            await self._client.publish(self._subject, json.dumps({"batch": 1, **options}).encode(), answers.subject)

    async def _collect(self, answers: Subscription, count: int, taken: list[Msg]) -> None:
        """Wait for `count` answers, and add the messages among them to `taken`."""
        end = time.monotonic() + self._wait
        for _ in range(count):
            answer = await answers.next_msg(max(0.001, end - time.monotonic()))
            if is_stored(answer):
                taken.append(answer)
            else:
                _check(answer)


def is_stored(message: Msg) -> bool:
    """Whether this is a message of a stream, whatever its headers say, and not an answer of the server itself."""
    return bool(message.reply.startswith(f"{ACK}."))


def _available(message: Msg, most: int) -> int:
    """How many more messages can be taken at once. The server counts only those that were never delivered before, so
    after a repeated message `most` are asked for."""
    metadata = message.metadata
    return most if metadata.num_delivered > 1 else int(metadata.num_pending)


def _check(answer: Msg) -> None:
    headers = answer.headers or {}
    status = headers.get("Status", "")
    if status not in NOTHING:
        raise NatsError(f"{status} {headers.get('Description', '')}".strip())
