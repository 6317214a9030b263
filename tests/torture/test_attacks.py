"""Every attack of the tables in `attacks`, each one test, against real parties.

The process lives, the message is done with and counted, and the federation goes on to its end with the right totals, or
says why it does not. Bugs that are planted on purpose show that the attacks find what they look for.
"""

import asyncio

import pytest

from tests.federation.harness import federation
from tests.torture.attacks import arena as in_one_process
from tests.torture.attacks.arena import arena
from tests.torture.attacks.at_the_broker import AT_THE_BROKER, Battlefield
from tests.torture.attacks.at_the_broker import PLAN as BROKER_PLAN
from tests.torture.attacks.equivocating import EQUIVOCATING
from tests.torture.attacks.forged import FORGED
from tests.torture.attacks.huge import HUGE
from tests.torture.attacks.malformed import MALFORMED
from tests.torture.attacks.over_http import OVER_HTTP, serving
from tests.torture.attacks.planted import PLANTED
from tests.torture.attacks.replayed import REPLAYED
from tests.torture.attacks.untimely import UNTIMELY

pytestmark = pytest.mark.fire
MESSAGES = [case for table in (FORGED, REPLAYED, EQUIVOCATING, UNTIMELY, HUGE, MALFORMED) for case in table.cases]
IMPATIENT = 8.0  # seconds that a planted bug may stop everything before it counts as caught


async def by_message(case):
    async with arena(**case.setting) as place:
        await case.play(place)


async def over_http(case):
    async with serving(**case.setting) as place:
        await case.play(place)
        if not place.silo.ended:
            await place.go_on()


async def at_the_broker(case, folder):
    async with federation(folder, BROKER_PLAN) as running:
        field = await Battlefield.of(running)
        try:
            async with asyncio.timeout(IMPATIENT):
                await case.play(field)
                await field.go_on()
        finally:
            await field.close()


def names(cases):
    return [case.name for case in cases]


@pytest.mark.parametrize("case", MESSAGES, ids=names(MESSAGES))
def test_messages(case, tally):
    asyncio.run(by_message(case))
    tally("attacks", 1)


@pytest.mark.parametrize("case", OVER_HTTP.cases, ids=names(OVER_HTTP.cases))
def test_over_http(case, tally):
    asyncio.run(over_http(case))
    tally("attacks", 1)


@pytest.fixture(scope="module")
def battlefield(tmp_path_factory):
    """One running federation for all that is tried at the broker, on one event loop."""
    with asyncio.Runner() as runner:
        running = federation(tmp_path_factory.mktemp("broker"), BROKER_PLAN)
        field = runner.run(Battlefield.of(runner.run(running.__aenter__())))
        yield runner, field
        runner.run(field.close())
        runner.run(running.__aexit__(None, None, None))


@pytest.mark.parametrize("case", AT_THE_BROKER.cases, ids=names(AT_THE_BROKER.cases))
def test_at_the_broker(case, battlefield, tally):
    runner, field = battlefield
    runner.run(case.play(field))
    runner.run(field.go_on())
    tally("attacks", 1)


def play(case, folder):
    if case in OVER_HTTP.cases:
        asyncio.run(over_http(case))
    elif case in AT_THE_BROKER.cases:
        asyncio.run(at_the_broker(case, folder))
    else:
        asyncio.run(by_message(case))


@pytest.mark.parametrize("bug", PLANTED, ids=names(PLANTED))
def test_a_planted_bug_is_caught(bug, monkeypatch, tmp_path, tally):
    if bug.fails is TimeoutError:
        monkeypatch.setattr(in_one_process, "PATIENCE", 2.0)
    bug.plant(monkeypatch)
    with pytest.raises(bug.fails):
        play(bug.case, tmp_path)
    tally("planted bugs caught", 1)


def test_every_attack_is_told_apart():
    tables = (FORGED, REPLAYED, EQUIVOCATING, UNTIMELY, HUGE, MALFORMED, AT_THE_BROKER, OVER_HTTP)
    for table in tables:
        assert len(set(names(table.cases))) == len(table.cases)
        for case in table.cases:
            assert case.who
            assert case.tried
            assert case.must
