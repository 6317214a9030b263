"""Reading and publishing over a real broker, whatever others put into their messages."""

import asyncio
import time
from typing import Any, cast

import pytest
from nats.js.errors import ServiceUnavailableError

from fedbandit.federation.setup import founding
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.link import WAIT, BrokerAddress, BrokerRefusal, Link, MessageTooLarge
from fedbandit.federation.wire.subjects import Consumer
from tests.federation.harness import federation
from tests.federation.small import small_plan
from tests.federation.wire.test_broker import EVERYBODY, STREAMS, connect, operator_link

STATUSES = ("500", "404", "408", "409", "100", "503", "nonsense")
RAW = (
    b"NATS/1.0 \xff\xff\xff\r\nA: b\r\n\r\n",  # this one ended the connection of whoever read it
    b"NATS/1.0 500 \xff\xff\r\nA: b\r\n\r\n",
    b"NATS/1.0 500 X\r\nA: b\r\n\r\n",
    b"NATS/1.0",
    b"\xff" * 16,
)
ANALYZER, SILO, OTHER = "analyzer", "fb.demo.analyzer.silo-00", "fb.demo.analyzer.silo-01"


async def publish_raw(link, subject, headers, data):
    """Bytes in the place of headers that no client would put there."""
    sizes = f"{len(headers)} {len(headers) + len(data)}".encode()
    await link.client._send_command(b"HPUB " + subject.encode() + b" " + sizes + b"\r\n" + headers + data + b"\r\n")
    await link.client.flush()


async def until_read(link, consumer, last, limit):
    """What is read until that message has come."""
    got, came = [], asyncio.Event()

    async def handle(messages):
        got.extend(messages)
        if last in messages:
            came.set()

    reading = asyncio.create_task(link.read(consumer, handle))
    waiting = asyncio.create_task(came.wait())
    await asyncio.wait({reading, waiting}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        reading.result()
    assert came.is_set(), f"not read in {limit:g} s; {len(got)} others were"
    await asyncio.sleep(0.1)  # until they are acknowledged
    for task in (reading, waiting):
        task.cancel()
    await asyncio.gather(reading, waiting, return_exceptions=True)
    return got


async def until_stored(path, messages):
    operator = await operator_link(path)
    while (await operator.js.stream_info(STREAMS["analyzer"])).state.messages < messages:
        await asyncio.sleep(0.01)
    await operator.close()


async def nothing_is_left(path):
    operator = await operator_link(path)
    info = await operator.js.consumer_info(STREAMS["analyzer"], ANALYZER)
    await operator.close()
    return info.num_pending == 0 and info.num_ack_pending == 0


def test_every_stored_message_is_handed_over_and_acknowledged_whatever_its_headers(tmp_path):
    """A header `Status` was taken for the server's own word: 500 ended the reader, 404 stayed in the queue for ever.
    Headers that cannot be parsed ended the connection."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo, analyzer = await connect(running, "silo-00"), await connect(running, ANALYZER)
            for status in STATUSES:
                headers = {"Status": status, "Description": "Consumer Deleted"}
                await silo.js.publish(SILO, status.encode(), headers=headers)
                await silo.js.publish(SILO, b"", headers=headers)
            for raw in RAW:
                await publish_raw(silo, SILO, raw, b"raw")
            await silo.publish(SILO, b"last", "last")
            consumer = running.homes[ANALYZER].party().consumer
            got = await until_read(analyzer, consumer, b"last", 5)
            assert got == [data for status in STATUSES for data in (status.encode(), b"")] + [b"raw"] * len(RAW) + [
                b"last"
            ]
            assert analyzer.trouble is None
            assert await nothing_is_left(tmp_path)
            for link in (silo, analyzer):
                await link.close()

    asyncio.run(main())


def test_empty_messages_do_not_delay_those_of_others(tmp_path):
    """An empty message was the end of the whole answer for the server: what followed came again seconds later."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo, other = await connect(running, "silo-00"), await connect(running, "silo-01")
            analyzer = await connect(running, ANALYZER)
            for _ in range(100):
                await silo.client.publish(SILO, b"")
            await silo.client.flush()
            await until_stored(tmp_path, 100)  # the order of two senders is decided by the server
            await other.publish(OTHER, b"last", "last")
            got = await until_read(analyzer, running.homes[ANALYZER].party().consumer, b"last", 4.0)
            assert got == [b""] * 100 + [b"last"]
            assert await nothing_is_left(tmp_path)
            for link in (silo, other, analyzer):
                await link.close()

    asyncio.run(main())


def test_what_a_killed_reader_had_taken_is_read_again_in_order(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo, analyzer = await connect(running, "silo-00"), await connect(running, ANALYZER)
            sent = [str(number).encode() for number in range(150)]
            for data in sent:
                await silo.publish(SILO, data, data.decode())

            async def fail(messages):
                raise ZeroDivisionError

            consumer = running.homes[ANALYZER].party().consumer
            with pytest.raises(ZeroDivisionError):
                await analyzer.read(consumer, fail)
            got = await until_read(analyzer, consumer, sent[0], 10)
            assert list(dict.fromkeys(got)) == sent[64:] + sent[:64]
            assert await nothing_is_left(tmp_path)
            for link in (silo, analyzer):
                await link.close()

    asyncio.run(main())


def test_syncs_go_on_under_a_silo_that_sends_such_messages(tmp_path):
    """An answer that is cut off costs a wait, each time. A busy machine costs one now and then."""

    async def main():
        async with federation(tmp_path, small_plan(rounds=30)) as running:
            await running.sync(0)

            async def seconds(sync):
                began = time.monotonic()
                await running.sync(sync)
                return time.monotonic() - began

            undisturbed, disturbed = await seconds(1), []
            for sync in (2, 3, 4):
                for role in ("mixer", "analyzer"):
                    subject = f"fb.demo.{role}.silo-00"
                    await running.links["silo-00"].js.publish(subject, b"x", headers={"Status": "500"})
                    await running.links["silo-00"].js.publish(subject, b"x", headers={"Status": "404"})
                    await publish_raw(running.links["silo-00"], subject, RAW[0], b"x")
                    for _ in range(50):
                        await running.links["silo-00"].client.publish(subject, b"")
                disturbed.append(await seconds(sync))
            assert min(disturbed) < undisturbed + WAIT / 2

    asyncio.run(main())


async def shrink(path, size):
    """Streams as they are for a plan with smaller messages."""
    operator = await operator_link(path)
    for stream in STREAMS.values():
        config = (await operator.js.stream_info(stream)).config
        await operator.js.update_stream(config.evolve(max_msg_size=size))
    await operator.close()


def test_provision_brings_streams_and_consumers_up_to_date_and_keeps_messages(tmp_path, monkeypatch):
    """It failed where a renewed plan needs larger messages."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo, analyzer = await connect(running, "silo-00"), await connect(running, ANALYZER)
            operator = await operator_link(tmp_path)
            needed = (await operator.js.stream_info(STREAMS["analyzer"])).config
            await shrink(tmp_path, 600)
            consumer = running.homes[ANALYZER].party().consumer
            await silo.publish(SILO, b"read", "read")
            assert await until_read(analyzer, consumer, b"read", 5) == [b"read"]
            await silo.publish(SILO, b"kept", "kept")
            with pytest.raises(MessageTooLarge):
                await silo.publish(SILO, bytes(601), "large")
            monkeypatch.setattr(broker, "ACK_WAIT", 2.0)
            for _ in range(2):
                await founding.provision(tmp_path)
                assert (await operator.js.stream_info(STREAMS["analyzer"])).config == needed
                assert (await operator.js.consumer_info(STREAMS["analyzer"], ANALYZER)).config.ack_wait == 2
            await silo.publish(SILO, bytes(601), "large")
            assert silo.trouble is None
            assert await until_read(analyzer, consumer, bytes(601), 5) == [b"kept", bytes(601)]
            for link in (silo, analyzer, operator):
                await link.close()

    asyncio.run(main())


def test_provision_never_lowers_a_limit(tmp_path):
    """Lower limits delete what is stored."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY):
            operator = await operator_link(tmp_path)
            config = (await operator.js.stream_info(STREAMS["analyzer"])).config
            wider = config.evolve(
                max_msg_size=2 * config.max_msg_size, max_msgs_per_subject=2 * config.max_msgs_per_subject
            )
            await operator.js.update_stream(wider)
            await founding.provision(tmp_path)
            assert (await operator.js.stream_info(STREAMS["analyzer"])).config == wider
            await operator.close()

    asyncio.run(main())


def test_a_release_that_the_broker_does_not_take_is_not_sent_and_stops_further_draws(tmp_path):
    """It counted as sent, and the budget was spent on one release after another that nobody got."""

    async def main():
        async with federation(tmp_path, small_plan()) as running:
            await running.sync(0)
            await shrink(tmp_path, 600)
            agent = running.running["silo-00"]
            term = agent.silo.term.number
            await running.batch(1)
            await running.until(lambda: running.sealers["silo-00"].held is not None)
            assert "bytes" in agent.problem
            assert "bytes" in running.links["silo-00"].trouble
            assert agent.silo.store.in_state(term, ReleaseState.SEALED) == [1]
            spent = len(agent.silo.store.ledger())
            await running.batch(2)
            await asyncio.sleep(2)
            assert len(agent.silo.store.ledger()) == spent
            assert agent.silo.store.in_state(term, ReleaseState.SENT) == []
            await founding.provision(tmp_path)
            await running.wait(3)
            assert agent.problem is None
            assert running.links["silo-00"].trouble is None

    asyncio.run(main())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_cannot_be_read_is_named_as_a_problem_of_certificates(tmp_path, content):
    """It was said of the broker, "[Errno 2] No such file or directory", and no file was named."""
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BrokerRefusal, match=r"ca\.pem, which broker_ca in party\.json names") as refused:
        BrokerAddress("tls://127.0.0.1:4222", str(file)).context()
    assert refused.value.kind == "certificate"
    assert BrokerAddress("nats://127.0.0.1:4222", str(file)).context() is None


class Hopeless:
    """A client, its streams and a reader, for which the broker has no majority a few times."""

    is_closed, is_connected = False, True

    def __init__(self, times):
        self.times = times

    def jetstream(self, timeout):
        return self

    async def publish(self, *_, **__):
        await self.take(0)

    async def take(self, _):
        self.times -= 1
        if self.times >= 0:
            raise ServiceUnavailableError(code=503, description="503 \nNats-Subject: $JS.API.CONSUMER.MSG.NEXT")
        return []


@pytest.mark.parametrize("call", ["publish", "read"])
def test_a_broker_without_a_majority_is_said_once_and_in_one_line(monkeypatch, caplog, call):
    """It was two lines every half second, for as long as it lasted."""
    monkeypatch.setattr("fedbandit.federation.wire.link.RETRY", 0.001)
    monkeypatch.setattr("fedbandit.federation.wire.link.WAIT", 0.001)
    client = Hopeless(5)
    link = Link(cast(Any, client), "silo-00")
    consumer = Consumer("FB_demo_silo", "silo-00", SILO)
    with caplog.at_level("WARNING", "fedbandit.federation.wire.link"):
        asyncio.run(link.publish(SILO, b"x", "1") if call == "publish" else link._taken(cast(Any, client), consumer))
    assert client.times == -1
    assert link.trouble is None
    (line,) = caplog.messages
    assert "trying until it works" in line
    assert "\n" not in line
