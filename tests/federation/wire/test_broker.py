"""Who may say and read what at the broker: everything else is refused by the server itself."""

import asyncio
import json

import pytest
from nats.js.errors import APIError

from fedbandit.federation.setup import founding
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.federation.wire.keys import ROLES, PartyKeys
from fedbandit.federation.wire.link import BrokerAddress, Link, MessageTooLarge
from fedbandit.federation.wire.subjects import OPERATOR, Subjects
from fedbandit.privacy.budget import Privacy
from tests.federation.harness import federation
from tests.federation.small import small_plan

STREAMS = {role: Subjects("demo", ()).stream(role) for role in ROLES}
EVERYBODY = ("silo-00", "silo-01", "silo-02", "analyzer", "mixer")


async def connect(running, name, key=None):
    home = running.homes[name]
    address = home.broker(home.agreement())
    return await asyncio.wait_for(Link.connect(address, name, key or home.keys.broker), 10)


async def may_publish(link, subject):
    """Whether the server takes it: a refusal comes before the answer to the ping of `flush`."""
    refusals = []

    async def note(error):
        refusals.append(str(error))

    link.client._error_cb = note
    await link.client.publish(subject, b"{}", reply=link.client.new_inbox())
    await link.client.flush()
    await asyncio.sleep(0.05)  # the client reports errors in a task of its own
    assert all(subject.lower() in refusal.lower() for refusal in refusals)
    return not refusals


@pytest.mark.parametrize("trust", ["secure-sum", "silo"])
def test_each_role_can_do_its_own_and_nothing_else(tmp_path, trust):
    said = {"silo-00": {"analyzer.silo-00"}, "analyzer": {"silo.silo-00", "silo.silo-01"}}
    if trust == "secure-sum":
        said["silo-00"].add("mixer.silo-00")
        said["analyzer"].add("mixer.analyzer")
        said["mixer"] = {"analyzer.mixer", "silo.silo-00", "silo.silo-01"}
    roles = ("analyzer", "mixer", "silo")
    everything = [f"{role}.{party}" for role in roles for party in ("silo-00", "silo-01", "analyzer", "mixer")]

    async def main():
        async with federation(tmp_path, small_plan(trust=trust), absent=EVERYBODY) as running:
            for name in said:
                link = await connect(running, name)
                allowed = [s for s in everything if await may_publish(link, f"fb.demo.{s}")]
                assert set(allowed) - {"silo.analyzer", "silo.mixer"} == said[name], name
                role = running.homes[name].settings.role
                own = f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS[role]}.{name}"
                assert await may_publish(link, own)
                for call in (
                    f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS['silo']}.silo-01",
                    f"$JS.API.STREAM.MSG.GET.{STREAMS['analyzer']}",
                    f"$JS.API.STREAM.INFO.{STREAMS['analyzer']}",
                    f"$JS.API.CONSUMER.CREATE.{STREAMS['analyzer']}.spy",
                    f"$JS.API.STREAM.DELETE.{STREAMS['analyzer']}",
                ):
                    assert not await may_publish(link, call), (name, call)
                await link.close()

    asyncio.run(main())


async def operator_link(path):
    keys = PartyKeys.load(path / founding.OPERATOR_KEYS)
    url = json.loads((path / "federation.json").read_text())["broker"]
    return await Link.connect(BrokerAddress(url), OPERATOR, keys.broker)


def test_the_server_does_nothing_for_a_party_by_way_of_a_reply_subject(tmp_path):
    """A request that a party may make asked for its answer on $JS.API.STREAM.DELETE..., and the server published it
    there itself: the stream was gone."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            operator = await operator_link(tmp_path)
            for name in ("silo-00", "analyzer", "mixer"):
                link = await connect(running, name)
                role = running.homes[name].settings.role
                take = f"$JS.API.CONSUMER.MSG.NEXT.{STREAMS[role]}.{name}"
                said = f"fb.demo.{'silo.silo-00' if role == 'analyzer' else f'analyzer.{name}'}"
                for stream in STREAMS.values():
                    for call in (
                        f"$JS.API.STREAM.DELETE.{stream}",
                        f"$JS.API.STREAM.PURGE.{stream}",
                        f"$JS.API.CONSUMER.DELETE.{stream}.analyzer",
                        f"$JS.API.STREAM.MSG.DELETE.{stream}",
                        "fb.demo.analyzer.silo-01",
                    ):
                        for request, body in ((take, b'{"batch":1,"no_wait":true,"expires":1}'), (said, b"{}")):
                            await link.client.publish(request, body, reply=call)
                await link.client.flush()
                await asyncio.sleep(0.3)
                await link.close()
            for role, stream in STREAMS.items():
                info = await operator.js.stream_info(stream)
                assert info.config.max_msg_size > 0
                assert info.config.max_age == 30 * 86400
                assert info.state.consumer_count == (3 if role == "silo" else 1)
            taken = await operator.js.stream_info(STREAMS["analyzer"])
            assert taken.state.messages == 30  # what silo-00 and mixer said under their own names, and nothing else
            await operator.close()

    asyncio.run(main())


def test_a_message_that_the_plan_has_no_place_for_is_not_taken(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo = await connect(running, "silo-00")
            with pytest.raises(APIError, match="size exceeds"):
                await silo.js.publish("fb.demo.analyzer.silo-00", bytes(100_000))
            with pytest.raises(MessageTooLarge, match="100000 bytes"):
                await asyncio.wait_for(silo.publish("fb.demo.analyzer.silo-00", bytes(100_000), "too large"), 5)
            await silo.publish("fb.demo.mixer.silo-00", b"small", "small")
            assert silo.trouble is not None
            assert "100000 bytes" in silo.trouble
            for number in range(1100):
                await silo.client.publish("fb.demo.analyzer.silo-00", number.to_bytes(4, "big"))
            await silo.js.publish("fb.demo.mixer.silo-00", b"of another sender")
            operator = await operator_link(tmp_path)
            for _ in range(600):
                info = await operator.js.stream_info(STREAMS["analyzer"])
                if info.state.last_seq == 1100:
                    break
                await asyncio.sleep(0.1)
            assert info.state.messages == 1008  # a silo's share, however much it sends
            await operator.close()
            await silo.close()

    asyncio.run(main())


def test_a_plan_whose_messages_are_too_large_is_not_founded(tmp_path):
    plan = small_plan(
        silos=1000, dim=80, trust="shuffle", privacy=Privacy(0.0003, 0.1), mechanism="tree", calibration="paper"
    )
    with pytest.raises(ValueError, match="messages of at most 32 MB"):
        founding.found(tmp_path, "trial", plan, "nats://127.0.0.1:4222", Timing(5.0, start=0.0))


def test_nobody_hears_what_is_said_to_others(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            spy, silo = await connect(running, "silo-01"), await connect(running, "silo-00")
            heard = []

            async def listen(message):
                heard.append(message.subject)

            for pattern in (">", "fb.>", "fb.demo.analyzer.silo-00", "_INBOX_silo-00.>"):
                await spy.client.subscribe(pattern, cb=listen)
            await spy.client.flush()
            assert await may_publish(silo, "fb.demo.analyzer.silo-00")
            await asyncio.sleep(0.2)
            assert heard == []
            await spy.close()
            await silo.close()

    asyncio.run(main())


def test_an_unknown_key_cannot_log_in(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            with pytest.raises(PermissionError, match="does not know"):
                await connect(running, "silo-00", PartyKeys.generate().broker)

    asyncio.run(main())


def test_a_repeated_message_is_stored_once_and_streams_are_on_disk(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            silo = await connect(running, "silo-00")
            for _ in range(3):
                await silo.publish("fb.demo.analyzer.silo-00", b"release", "release.0.silo-00")
            await silo.close()
            running.server.kill()
            await asyncio.to_thread(running.server.start)
            kept = await founding.provision(tmp_path)  # again: changes nothing
            assert kept == broker.RETENTION
            operator = await operator_link(tmp_path)
            info = await operator.js.stream_info(STREAMS["analyzer"])
            assert info.state.messages == 1
            await operator.close()

    asyncio.run(main())


def test_nobody_can_use_up_the_id_of_anothers_message(tmp_path):
    """The broker compares ids within a stream, whoever has sent them: one silo made it drop the others' releases."""

    async def main():
        async with federation(tmp_path, small_plan(), absent=EVERYBODY) as running:
            attacker, silo = await connect(running, "silo-01"), await connect(running, "silo-00")
            taken = {"Nats-Msg-Id": "release.0.silo-00.analyzer"}
            await attacker.js.publish("fb.demo.analyzer.silo-01", b"nonsense", headers=taken)
            await silo.publish("fb.demo.analyzer.silo-00", b"a release", "release.0.silo-00.analyzer")
            operator = await operator_link(tmp_path)
            assert (await operator.js.stream_info(STREAMS["analyzer"])).state.messages == 2
            for link in (attacker, silo, operator):
                await link.close()

    asyncio.run(main())


def test_the_configuration_holds_no_secret(tmp_path):
    homes = founding.local(tmp_path, small_plan(), ["a", "b", "c"], Timing(5.0, start=0.0))
    text = (tmp_path / founding.BROKER_CONFIG).read_text()
    for home in homes:
        assert not any(seed.hex() in text for seed in home.keys.seeds.values())
    assert json.loads(text)["jetstream"]["sync_interval"] == "always"
    assert json.loads(text)["host"] == "127.0.0.1"
