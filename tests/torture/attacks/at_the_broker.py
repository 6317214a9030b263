"""What a party can do at the broker beside what its role needs: nothing that touches another party.

One federation runs over a real broker while all of these are tried; after each, its next sync is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any

import pytest
from nats.js.errors import APIError

from fedbandit.federation.setup import founding
from fedbandit.federation.wire.envelopes import OVERHEAD
from fedbandit.federation.wire.keys import PartyKeys
from fedbandit.federation.wire.link import BrokerAddress, Link, MessageTooLarge
from fedbandit.federation.wire.parcels import largest
from fedbandit.federation.wire.subjects import OPERATOR
from fedbandit.schedule import every
from tests.federation.harness import Harness
from tests.federation.small import small_plan
from tests.torture.attacks.cases import Table

AT_THE_BROKER: Table[Battlefield] = Table()
attack = AT_THE_BROKER.attack
PLAN = small_plan(rounds=40, schedule=every(1), cohort=2)
ROLES = ("silo", "mixer", "analyzer")
STREAMS = {"silo": "FB_demo_silo", "mixer": "FB_demo_mixer", "analyzer": "FB_demo_analyzer"}
ATTACKERS = ("silo-00", "mixer", "analyzer")


class Battlefield:
    """A running federation, and connections under the keys of its parties."""

    def __init__(self, running: Harness, operator: Link) -> None:
        self.running, self.synced = running, 0
        self._operator = operator

    @classmethod
    async def of(cls, running: Harness) -> Battlefield:
        keys = PartyKeys.load(running.path / founding.OPERATOR_KEYS)
        return cls(running, await Link.connect(BrokerAddress(cls.url(running)), OPERATOR, keys.broker))

    @staticmethod
    def url(running: Harness) -> str:
        return str(json.loads((running.path / "federation.json").read_text())["broker"])

    async def connect(self, name: str, keys: PartyKeys | None = None) -> Link:
        home = self.running.homes[name]
        key = (keys or home.keys).broker
        return await asyncio.wait_for(Link.connect(home.broker(home.agreement()), name, key), 10)

    async def streams(self) -> dict[str, Any]:
        """What the operator sees of every stream."""
        return {stream: await self._operator.js.stream_info(stream) for stream in STREAMS.values()}

    async def pending(self, name: str) -> int:
        """Messages of a party that it has not done with."""
        role = self.running.homes[name].settings.role
        info = await self._operator.js.consumer_info(STREAMS[role], name)
        return int(info.num_ack_pending or 0) + int(info.num_pending or 0)

    async def all_denied(self, *calls: str, attackers: tuple[str, ...] = ATTACKERS) -> None:
        """The server refuses every one of these subjects to every one of these parties."""
        for name in attackers:
            link = await self.connect(name)
            assert await refused(link, calls) == set(calls), name
            await link.close()

    async def close(self) -> None:
        await self._operator.close()

    async def go_on(self) -> None:
        """The next sync is whole, and nobody has a message left."""
        await self.running.sync(self.synced)
        assert self.running.outcome(self.synced).cohort.all()
        self.synced += 1
        for name in self.running.homes:
            for _ in range(100):
                if not await self.pending(name):
                    break
                await asyncio.sleep(0.05)
            assert not await self.pending(name), f"{name} has messages that it is not done with"


async def refused(link: Link, subjects: Sequence[str]) -> set[str]:
    """Those of the subjects that this connection may not publish on."""
    refusals: list[str] = []

    async def note(error: Exception) -> None:
        refusals.append(str(error))

    link.client._error_cb = note
    for subject in subjects:
        await link.client.publish(subject, b"{}", reply=link.client.new_inbox())
    await link.client.flush()
    await asyncio.sleep(0.05)  # the client reports errors in a task of its own
    return {subject for subject in subjects if any(f'"{subject.lower()}"' in refusal.lower() for refusal in refusals)}


@attack("silo-00", "publish under the names of others", "denied by the server")
async def subjects_of_others(field: Battlefield) -> None:
    others = [f"fb.demo.{role}.{name}" for role in ("mixer", "analyzer") for name in ("silo-01", "mixer", "analyzer")]
    silos = [f"fb.demo.silo.{name}" for name in ("silo-00", "silo-01")]
    await field.all_denied(*others, *silos, "fb.other.mixer.silo-00", "fb.demo", attackers=("silo-00",))


@attack("mixer, analyzer", "publish under the name of a silo", "denied by the server")
async def silos_of_others(field: Battlefield) -> None:
    await field.all_denied("fb.demo.mixer.silo-00", "fb.demo.analyzer.silo-00", attackers=("mixer", "analyzer"))


@attack("every role", "delete a stream", "denied by the server; the streams are there")
async def delete_stream(field: Battlefield) -> None:
    await field.all_denied(*(f"$JS.API.STREAM.DELETE.{stream}" for stream in STREAMS.values()))
    assert len(await field.streams()) == 3


@attack("every role", "purge a stream or delete a message of it", "denied by the server")
async def purge(field: Battlefield) -> None:
    calls = ("STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.UPDATE", "STREAM.CREATE", "STREAM.RESTORE")
    await field.all_denied(*(f"$JS.API.{call}.{stream}" for call in calls for stream in STREAMS.values()))


@attack("every role", "read a stream without a consumer", "denied by the server")
async def read_stream(field: Battlefield) -> None:
    calls = ("STREAM.MSG.GET", "DIRECT.GET", "STREAM.INFO", "STREAM.SNAPSHOT")
    await field.all_denied(*(f"$JS.API.{call}.{stream}" for call in calls for stream in STREAMS.values()))


@attack("every role", "make a consumer of its own", "denied by the server")
async def create_consumer(field: Battlefield) -> None:
    calls = [f"$JS.API.CONSUMER.{call}" for stream in STREAMS.values() for call in (
        f"CREATE.{stream}.spy", f"DURABLE.CREATE.{stream}.spy", f"CREATE.{stream}", f"DELETE.{stream}.analyzer",
        f"LIST.{stream}", f"PAUSE.{stream}.analyzer", f"LEADER.STEPDOWN.{stream}.analyzer",
    )]  # fmt: skip
    await field.all_denied(*calls)


@attack("every role", "take the messages of another party", "denied by the server")
async def read_of_others(field: Battlefield) -> None:
    own = {"silo-00": "silo", "mixer": "mixer", "analyzer": "analyzer"}
    for attacker in ATTACKERS:
        consumers = [(role, name) for role in ROLES for name in (*field.running.homes,) if name != attacker]
        calls = [f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS[role]}.{name}" for role, name in consumers]
        await field.all_denied(*calls, attackers=(attacker,))
        others = [f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS[role]}.{attacker}" for role in ROLES if role != own[attacker]]
        await field.all_denied(*others, attackers=(attacker,))


@attack("silo-00", "acknowledge the messages of another party", "denied by the server")
async def acknowledge_of_others(field: Battlefield) -> None:
    await field.all_denied(
        f"$JS.ACK.{STREAMS['silo']}.silo-01.1.1.1.1.1",
        f"$JS.ACK.{STREAMS['analyzer']}.analyzer.1.1.1.1.1",
        "$JS.ACK.>",
        attackers=("silo-00",),
    )


@attack("every role", "talk to the server itself", "denied by the server")
async def system_calls(field: Battlefield) -> None:
    await field.all_denied(
        "$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.META.LEADER.STEPDOWN",
        "$JS.API.SERVER.REMOVE", "$JS.API.ACCOUNT.PURGE.streams", "$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.ACCOUNT.streams.CLAIMS.UPDATE", "$KV.x.y", "$O.x",
    )  # fmt: skip


@attack("every role", "its own requests with $JS.API calls as the subject for the answer", "the server does none of it")
async def reply_subjects(field: Battlefield) -> None:
    before = await field.streams()
    for name in ATTACKERS:
        link = await field.connect(name)
        role = field.running.homes[name].settings.role
        take = f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS[role]}.{name}"
        for stream in STREAMS.values():
            for call in (
                f"$JS.API.STREAM.DELETE.{stream}",
                f"$JS.API.STREAM.PURGE.{stream}",
                f"$JS.API.STREAM.MSG.DELETE.{stream}",
                f"$JS.API.CONSUMER.DELETE.{stream}.analyzer",
                f"$JS.API.CONSUMER.CREATE.{stream}.spy",
                "fb.demo.analyzer.silo-01",
                "fb.demo.mixer.silo-01",
            ):
                await link.client.publish(take, b'{"batch":1,"no_wait":true,"expires":1}', reply=call)
                await link.client.publish(f"$JS.ACK.{STREAMS[role]}.{name}.1.1.1.1.1", b"+ACK", reply=call)
        await link.client.flush()
        await asyncio.sleep(0.1)
        await link.close()
    after = await field.streams()
    for stream, info in before.items():
        assert after[stream].state.messages == info.state.messages
        assert after[stream].state.consumer_count == info.state.consumer_count


@attack("silo-01", "listen to everything, to others' subjects and to others' answers", "nothing is heard")
async def listen(field: Battlefield) -> None:
    spy = await field.connect("silo-01")
    heard: list[str] = []

    async def note(message: Any) -> None:
        heard.append(message.subject)

    for pattern in (">", "fb.>", "fb.demo.analyzer.*", "_INBOX_silo-00.>", "_INBOX.>", "$JS.>", "$SYS.>"):
        await spy.client.subscribe(pattern, cb=note)
    await spy.client.flush()
    await field.go_on()
    assert heard == []
    await spy.close()


@attack("anybody", "log in with a key that nobody knows, or with another's name", "refused; a name opens nothing")
async def unknown_key(field: Battlefield) -> None:
    with pytest.raises(PermissionError):
        await field.connect("silo-00", PartyKeys.generate())
    home = field.running.homes["silo-01"]
    link = await Link.connect(home.broker(home.agreement()), "analyzer", home.keys.broker)
    assert await refused(link, ["fb.demo.mixer.analyzer"])
    await link.close()


@attack("silo-00", "a message above what the plan has a place for", "not taken by the server, and given up")
async def too_large(field: Battlefield) -> None:
    before = await field.streams()
    link = await field.connect("silo-00")
    size = largest(PLAN) + 512
    with pytest.raises(APIError, match="size exceeds"):
        await link.js.publish("fb.demo.analyzer.silo-00", bytes(size))
    for much in (size, 33 * 2**20):
        with pytest.raises(MessageTooLarge):
            await asyncio.wait_for(link.publish("fb.demo.analyzer.silo-00", bytes(much), "too large"), 20)
    await link.close()
    assert (await field.streams())[STREAMS["analyzer"]].state.messages == before[STREAMS["analyzer"]].state.messages


@attack("silo-00", "nonsense to mixer and analyzer through the broker", "refused, counted and acknowledged")
async def nonsense(field: Battlefield) -> None:
    link = await field.connect("silo-00")
    before = {name: field.running.running[name].refused.count for name in ("mixer", "analyzer")}
    for name in ("mixer", "analyzer"):
        for number, data in enumerate((b"", b"[" * 1900, b"FBE3" + b"[" * OVERHEAD, b"FBE3" + bytes(1900))):
            await link.publish(f"fb.demo.{name}.silo-00", data, f"nonsense.{number}")
    await link.close()
    await field.go_on()
    for name, count in before.items():
        assert field.running.running[name].refused.count == count + 4


@attack("silo-00", "more messages than its share", "its own oldest go; nobody else's do")
async def flood(field: Battlefield) -> None:
    link = await field.connect("silo-00")
    for number in range(1500):
        await link.client.publish("fb.demo.analyzer.silo-00", number.to_bytes(4, "big"))
    await link.client.flush()
    await link.close()
    await field.go_on()
    info = (await field.streams())[STREAMS["analyzer"]]
    assert info.state.messages <= 3 * (2 * 40 + 1000)


@attack("silo-00", "the ids of messages that others are about to send, used up beforehand", "theirs are not dropped")
async def ids_of_others(field: Battlefield) -> None:
    link = await field.connect("silo-00")
    now = field.synced
    ids = [f"release.{now}.silo-01.analyzer", f"release.{now}.silo-01.mixer", f"mixed.{now}", f"holds.{now}"]
    for role in ("mixer", "analyzer"):
        for used in ids:
            await link.js.publish(f"fb.demo.{role}.silo-00", b"first", headers={"Nats-Msg-Id": used})
    await link.close()


@attack("silo-00", "headers that roll a stream up, bound it or set its age", "nothing of another party's is lost")
async def headers(field: Battlefield) -> None:
    before = await field.streams()
    link = await field.connect("silo-00")
    for header in (
        {"Nats-Rollup": "all"},
        {"Nats-Rollup": "sub"},
        {"Nats-TTL": "1s"},
        {"Nats-Expected-Last-Sequence": "0"},
        {"Nats-Expected-Stream": "FB_demo_silo"},
        {"Nats-Schedule": "@at 2000-01-01T00:00:00Z", "Nats-Schedule-Target": "fb.demo.analyzer.silo-01"},
    ):
        with contextlib.suppress(APIError):
            await link.js.publish("fb.demo.analyzer.silo-00", b"x", headers=header)
    await link.close()
    after = await field.streams()
    assert after[STREAMS["analyzer"]].state.messages >= before[STREAMS["analyzer"]].state.messages


@attack(
    "anybody", "200 connections that say nothing, and one that talks nonsense", "the server drops them; syncs go on"
)
async def silent_connections(field: Battlefield) -> None:
    host, port = field.url(field.running).removeprefix("nats://").split(":")
    silent = [await asyncio.open_connection(host, int(port)) for _ in range(200)]
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"[" * 60_000 + b"\r\n")
    await field.go_on()
    await asyncio.sleep(2.5)  # the server waits two seconds for somebody to log in
    for other, mine in silent:
        mine.close()
        left = await asyncio.wait_for(other.read(), 5)
        assert b"Authentication Timeout" in left or b"INFO" in left
    writer.close()
