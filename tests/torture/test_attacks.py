"""Every attack of the tables in `attacks`, each one test, against real parties.

The process lives, the message is done with and counted, and the federation goes on to its end with the right totals, or
says why it does not.
"""

import asyncio

import pytest

from tests.federation.harness import federation
from tests.torture.attacks.arena import arena
from tests.torture.attacks.at_the_broker import AT_THE_BROKER, Battlefield
from tests.torture.attacks.at_the_broker import PLAN as BROKER_PLAN
from tests.torture.attacks.equivocating import EQUIVOCATING
from tests.torture.attacks.forged import FORGED
from tests.torture.attacks.huge import HUGE
from tests.torture.attacks.malformed import MALFORMED
from tests.torture.attacks.over_http import OVER_HTTP, serving
from tests.torture.attacks.replayed import REPLAYED
from tests.torture.attacks.untimely import UNTIMELY

pytestmark = pytest.mark.fire
MESSAGES = [case for table in (FORGED, REPLAYED, EQUIVOCATING, UNTIMELY, HUGE, MALFORMED) for case in table.cases]


def play(case):
    async def main():
        async with arena(**case.setting) as place:
            await case.play(place)

    asyncio.run(main())


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case.name)
def test_messages(case, tally):
    play(case)
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


@pytest.mark.parametrize("case", AT_THE_BROKER.cases, ids=lambda case: case.name)
def test_at_the_broker(case, battlefield, tally):
    runner, field = battlefield
    runner.run(case.play(field))
    runner.run(field.go_on())
    tally("attacks", 1)


@pytest.mark.parametrize("case", OVER_HTTP.cases, ids=lambda case: case.name)
def test_over_http(case, tally):
    async def main():
        async with serving(**case.setting) as place:
            await case.play(place)
            if not place.silo.ended:
                await place.go_on()

    asyncio.run(main())
    tally("attacks", 1)
