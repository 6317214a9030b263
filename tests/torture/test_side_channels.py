"""What everybody sees of a federation, who sends how much to whom and when, is the same whoever has come.

Neighbouring data: a person is there or not, a reward is 0 or 1, a batch holds nobody or two thousand people.
"""

import asyncio
import time

import numpy as np
import pytest

from fedbandit.federation import timing
from fedbandit.federation.setup import founding
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.timing import Reading, Timing
from fedbandit.federation.wire import messages
from fedbandit.schedule import clock, every
from tests.federation.small import small_plan
from tests.torture.attacks.arena import CLOCK_PLAN, SILOS, arena

pytestmark = pytest.mark.fire
TRUSTS = {
    "secure-sum": CLOCK_PLAN,
    "silo": CLOCK_PLAN.changed(trust="silo"),
    "central": CLOCK_PLAN.changed(trust="central"),
    "silo, tree": CLOCK_PLAN.changed(trust="silo", mechanism="tree", decode_at="silo"),
}
NEIGHBOURS = {
    "a person is there or not": ([(0.3,)] * 5, [(0.3,)] * 6),
    "a reward is 0 or 1": ([(0.0,)], [(1.0,)]),
    "somebody decides and is not rewarded": ([], [()]),
    "nobody or two thousand people": ([], [(1.0,)] * 2000),
}


def visits(silo, people):
    """These people come to a silo; each has a reward, or none."""
    if people:
        decisions = silo.decide_many(np.tile([[1.0, 0.0], [0.0, 1.0]], (len(people), 1, 1)))
        silo.reward_all([(one.id, reward[0]) for one, reward in zip(decisions, people, strict=True) if reward])


async def seen(plan, people):
    """Who sent how many bytes to whom, in order, in a term in which these people came to silo-00 in its first batch."""
    async with arena(plan) as place:
        visits(place.agents["silo-00"].silo, people)
        for _ in plan.times:
            place.pass_clock(plan.schedule.period)
            for name in SILOS:
                place.tick(name)
                await place.agents[name].send(place.link(name))
            await place.deliver()
        assert place.done == len(plan.times)
        return [(message.sender, message.receiver, len(message.data)) for message in place.crossed]


@pytest.mark.parametrize("plan", TRUSTS.values(), ids=TRUSTS.keys())
def test_numbers_sizes_and_order_of_messages(plan):
    runs = [asyncio.run(seen(plan, people)) for pair in NEIGHBOURS.values() for people in pair]
    assert len(runs[0]) > 10
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("trust", ["secure-sum", "silo"])
def test_one_size_for_all_releases_and_models(trust):
    """Whatever is in them: the first release and the last, an empty batch and a full one."""

    async def main():
        async with arena(CLOCK_PLAN.changed(trust=trust)) as place:
            sizes = set()
            for number, _ in enumerate(place.plan.times):
                visits(place.agents["silo-00"].silo, [(1.0,)] * (number * 500))
                place.pass_clock(3600.0)
                for name in SILOS:
                    place.tick(name)
                    await place.agents[name].send(place.link(name))
                await place.deliver()
            for message in place.crossed:
                context, plain = place.parties[message.receiver].open(message.data)
                sizes.add((context.kind, message.receiver[:4], len(message.data)))
                assert len(plain) < len(message.data)
        kinds = [(kind, receiver) for kind, receiver, _ in sizes]
        assert len(kinds) == len(set(kinds))

    asyncio.run(main())


class ShiftedClock:
    """The machine's clocks, set forward together."""

    def __init__(self):
        self.ahead = 0.0

    def read(self):
        return Reading(time.time() + self.ahead, time.monotonic() + self.ahead, "boot")


def drawn_in(path, people, period=3600.0):
    """Seconds that a tick with so many people takes, and seconds from the tick until its release leaves."""
    plan = small_plan(silos=1, rounds=2, schedule=clock(period), trust="silo", visits="private")
    start, hands = time.time(), ShiftedClock()
    agreed = Timing(60.0, start=start)
    home = founding.local(path, plan, ["silo-00"], agreed)[-1]
    sealer = Sealer(home.party())
    sealer.clear()
    with Silo.open(path / "silo.db", plan, sealer=sealer, secret=bytes(32), timing=agreed, clock=hands) as silo:
        silo.ticker.prepare()
        for at in range(0, people, 20_000):
            visits(silo, [(1.0,)] * min(20_000, people - at))
        moment = start + period
        hands.ahead = moment - time.time()
        began = time.perf_counter()
        assert silo.ticker.release() == [0]
        took = time.perf_counter() - began
        return took, leaves(hands, silo) - moment


def leaves(hands, silo):
    """When release 0 will leave. A machine that is busy may do something else between two looks at the clock: then they
    are taken again."""
    for _ in range(1000):
        before, wait, now = hands.read().wall, silo.ticker.wait_to_send(0), hands.read().wall
        if now - before < 0.005:
            return now + wait
    raise AssertionError("this machine is too busy to read its clock")


@pytest.mark.parametrize("people", [0, 1, 2_000, 20_000])
def test_a_release_leaves_at_a_fixed_moment(tmp_path, people):
    """Drawing takes longer for more people; the release leaves one pace after its tick, ten seconds here."""
    took, after = drawn_in(tmp_path, people)
    assert took < timing.LONGEST_PACE
    assert abs(after - timing.LONGEST_PACE) < 0.02


def test_the_moment_is_the_same_for_a_counted_schedule(tmp_path):
    plan = small_plan(silos=1, rounds=4000, schedule=every(2000), trust="silo")
    with Silo.open(tmp_path / "silo.db", plan) as silo:
        visits(silo, [(1.0,)] * 2000)
        began = time.perf_counter()
        assert silo.ticker.release() == [0]
        passed = time.perf_counter() - began + silo.ticker.wait_to_send(0)
        off = passed % timing.COUNTED_PACE
        assert min(off, timing.COUNTED_PACE - off) < 0.05


def test_what_the_release_of_a_large_batch_shows(tmp_path, size):
    """Where ticks are close together the pace is short, and above what is drawn within one the number of paces tells
    the size of a batch roughly: it is stated so."""
    people = size(20_000, 200_000)
    took, after = drawn_in(tmp_path, people, period=100 * timing.SHORTEST_PACE)
    paces = after / timing.SHORTEST_PACE
    assert abs(paces - round(paces)) < 0.05
    assert round(paces) <= took // timing.SHORTEST_PACE + 2, (
        f"{people} people: drawn in {took:.3f} s, left after {after:.3f} s"
    )


def test_sizes_do_not_depend_on_numbers():
    """The bytes of a message are fixed by its shapes."""
    sizes = {len(messages.encode([np.full(7, value)])) for value in (0.0, -1e300, 1e-300, np.pi)}
    assert len(sizes) == 1
