"""Results that a mixer or an analyzer has lost, and parties that wait for them or were brought forward over them."""

from typing import Any

import pytest

from fedbandit.federation.wire.envelopes import FORMAT, EnvelopeError
from fedbandit.federation.wire.heads import NEWEST, Greeting
from fedbandit.schedule import every
from tests.federation.small import small_plan
from tests.federation.syncs.test_keepers import DEADLINE, run


def receivers_of(plan):
    """Whom silos send to."""
    return sorted({part.reader for part in plan.protocol.parts})


def store_of(post, name):
    return post.homes[name].path / f"{name}-{post.plan.hash[:12]}.db"


def put_back(post, name, copy=None):
    """This copy, or an empty store, in place of the newest one."""
    file = store_of(post, name)
    post.keepers.pop(name).store.engine.close()
    for left in file.parent.glob(f"{file.name}*"):
        left.unlink()
    if copy is not None:
        file.write_bytes(copy)
    post.begin(name)


async def sync(post, number, receivers, **words):
    for silo in post.silos:
        post.release(silo, number, receivers, **words)
    await post.deliver()


def lacking(post, silo, receiver, sync):
    """A silo asks, and says that it has no result of this sync."""
    greeting = Greeting(FORMAT, FORMAT, question=b"q" * 16, lacks=sync)
    party = post.parties[silo]
    sealed = party.seal("greeting", post.parties[receiver].public, 0, party.greeting(greeting).encode())
    post.queues[receiver].append(sealed)


def told(post, silo, since=0):
    """What a silo was sent: models by their sync, and the syncs that the analyzer says it lacks."""
    models, lost = [], []
    for context, payload in map(post.parties[silo].open, post.queues[silo][since:]):
        if context.kind == "model":
            models.append(context.sync)
        elif context.kind == "greeting" and (sync := Greeting.decode(payload).lacks) is not None:
            lost.append(sync)
    return models, lost


BOTH_WAYS: dict[str, dict[str, Any]] = {
    "silos send to both": {"cohort": 2},
    "silos send to the mixer": {"trust": "vector-sum", "mechanism": "tree", "calibration": "paper"},
}


@pytest.mark.parametrize("how", BOTH_WAYS)
def test_a_silo_that_lacks_the_newest_results_is_sent_them_again(tmp_path, how):
    """It was brought forward over them, so that it waits for no outcome; and the newest is of a sync that was skipped,
    with which no term can begin."""
    plan = small_plan(rounds=8, schedule=every(1), **BOTH_WAYS[how])
    receivers = receivers_of(plan)

    async def scenario(post):
        for sync in range(2):
            for silo in post.silos:
                post.release(silo, sync, receivers)
            await post.deliver()
        post.release("silo-01", 2, receivers)
        await post.deliver()
        for _ in range(4):
            await post.pass_time(DEADLINE + 1)
        assert post.outcomes() == [[1, 1, 1], [1, 1, 1], [0, 0, 0]]
        for sync in (0, 2):
            before = len(post.queues["silo-00"])
            lacking(post, "silo-00", receivers[0], sync)
            await post.deliver()
            for _ in range(3):
                await post.pass_time(DEADLINE + 1)
            assert told(post, "silo-00", before) == ([0, 1, 2] if sync == 0 else [1, 2], [])

    run(tmp_path, plan, scenario)


@pytest.mark.parametrize("how", BOTH_WAYS)
def test_an_analyzer_that_has_lost_a_result_says_so_to_whoever_waits_for_it(tmp_path, how):
    """It was brought forward, and a silo never got the model that only the lost store had."""
    plan = small_plan(rounds=8, schedule=every(1), **BOTH_WAYS[how])
    receivers = receivers_of(plan)

    async def scenario(post):
        file = post.homes["analyzer"].path / f"analyzer-{plan.hash[:12]}.db"
        for sync in range(2):
            if sync == 1:
                post.begin("analyzer")  # closes the file
                saved = file.read_bytes()
                await post.greet()
            for silo in post.silos:
                post.release(silo, sync, receivers, models=post.keepers["analyzer"].own())
            await post.deliver()
        seen = post.keepers["analyzer"].own()
        for silo in post.silos:  # the others have seen the result, and so has the mixer
            post.release(silo, 2, receivers, models=seen)
        post.keepers["analyzer"].store.engine.close()
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()
        file.write_bytes(saved)
        del post.keepers["analyzer"]
        post.begin("analyzer")
        await post.greet()
        await post.deliver()
        analyzer = post.keepers["analyzer"]
        assert "behind" in analyzer.problem
        assert analyzer.give_up() == [1]
        await post.greet()
        before = {silo: len(post.queues[silo]) for silo in post.silos}
        for _ in range(4):
            post.release("silo-00", 1, receivers, models=seen)
            await post.deliver()
            await post.pass_time(DEADLINE + 1)
        assert 1 in told(post, "silo-00", before["silo-00"])[1]
        assert 1 not in told(post, "silo-00", before["silo-00"])[0]
        others = told(post, "silo-01", before["silo-01"])[1]
        assert (1 in others) == (receivers == ["mixer"])  # the mixer does not say who waits

    run(tmp_path, plan, scenario)


def test_a_mixer_that_has_lost_a_total_passes_on_who_waits(tmp_path):
    """Silos that send to the mixer alone can tell nobody else."""
    plan = small_plan(rounds=8, schedule=every(1), **BOTH_WAYS["silos send to the mixer"])

    async def scenario(post):
        for silo in post.silos:
            post.release(silo, 0, ["mixer"])
        await post.deliver()
        file = post.homes["mixer"].path / f"mixer-{plan.hash[:12]}.db"
        post.keepers["mixer"].store.engine.close()
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()
        del post.keepers["mixer"]
        post.begin("mixer")
        await post.greet()
        assert post.keepers["mixer"].give_up() == [0]
        before = len(post.queues["silo-00"])
        for _ in range(4):
            post.release("silo-00", 0, ["mixer"])
            await post.deliver()
            await post.pass_time(DEADLINE + 1)
        assert 0 in told(post, "silo-00", before)[0]

    run(tmp_path, plan, scenario)


@pytest.mark.parametrize("how", BOTH_WAYS)
def test_a_total_that_came_too_early_and_was_lost_holds_up_nobody(tmp_path, how):
    """The analyzer has noted its head and not what it says, and the mixer was brought forward over it: the analyzer
    waited for it for ever."""
    plan = small_plan(rounds=8, schedule=every(1), **BOTH_WAYS[how])
    receivers = receivers_of(plan)

    async def scenario(post):
        analyzer = post.keepers["analyzer"]
        check, receive = analyzer.deadlines.check, analyzer.party.open

        def too_early(number):
            raise EnvelopeError(f"sync {number} is early")

        def opened(envelope):
            context, payload = receive(envelope)
            analyzer.deadlines.check = too_early if context.kind == "mixed" else check
            return context, payload

        analyzer.party.open = opened
        await sync(post, 0, receivers)
        analyzer.party.open, analyzer.deadlines.check = receive, check
        assert analyzer.seen.of("mixer").syncs == 1
        put_back(post, "mixer")
        await post.greet()
        assert post.keepers["mixer"].give_up() == [0]
        await post.greet()
        for number in range(3):
            for _ in range(4):
                for earlier in range(number + 1):
                    await sync(post, earlier, receivers)
                await post.pass_time(DEADLINE + 1)
        assert post.outcomes() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]

    run(tmp_path, plan, scenario)


def test_a_mixer_that_was_put_back_with_the_analyzer_says_that_it_is_behind(tmp_path):
    """Nobody can give it the heads of its totals, and it waited for ever without a word."""
    plan = small_plan(rounds=8, schedule=every(1), cohort=2)
    receivers = receivers_of(plan)

    async def scenario(post):
        saved = {}
        for number in range(3):
            if number == 1:
                for name in list(post.keepers):
                    post.begin(name)  # closes the file
                    saved[name] = store_of(post, name).read_bytes()
                await post.greet()
            await sync(post, number, receivers, models=post.keepers["analyzer"].own())
        for name in saved:
            put_back(post, name, saved[name])
        await post.greet()
        assert post.keepers["analyzer"].give_up() == [1, 2]
        await post.greet()
        await sync(post, 3, receivers, models=post.keepers["analyzer"].own())
        assert "has closed 1 syncs, and the analyzer has made models of 3" in post.keepers["mixer"].problem
        assert "behind" in post.keepers["mixer"].troubles

    run(tmp_path, plan, scenario)


def test_what_a_silo_lacks_is_not_forgotten_by_an_analyzer_that_cannot_send_it_yet(tmp_path):
    """Silo and analyzer are put back on one day, and the silo is first."""

    async def scenario(post):
        for number in range(2):
            await sync(post, number, ["analyzer", "mixer"])
        post.begin("analyzer")  # nobody has answered it yet
        before = len(post.queues["silo-00"])
        lacking(post, "silo-00", "analyzer", 0)
        await post.keepers["analyzer"].handle(post.office.take("analyzer"))
        assert not post.keepers["analyzer"].ready
        post.begin("analyzer")
        await post.greet()
        await post.pass_time(DEADLINE + 1)
        assert told(post, "silo-00", before)[0] == [0, 1]
        post.begin("analyzer")
        await post.greet()
        for _ in range(3):
            await post.pass_time(DEADLINE + 1)
        assert told(post, "silo-00", before)[0] == [0, 1]  # once

    run(tmp_path, small_plan(rounds=8, schedule=every(1), cohort=2), scenario)


def test_a_result_of_long_ago_is_sent_too_if_it_is_asked_for(tmp_path):
    plan = small_plan(rounds=40, schedule=every(1), cohort=2)

    async def scenario(post):
        for number in range(NEWEST + 4):
            await sync(post, number, ["analyzer", "mixer"])
        before = len(post.queues["silo-00"])
        for _ in range(3):
            lacking(post, "silo-00", "analyzer", 1)
            await post.deliver()
        assert told(post, "silo-00", before)[0] == [1, *range(4, NEWEST + 4)]  # once per deadline

    run(tmp_path, plan, scenario)


def test_each_of_many_lost_results_is_answered_at_once(tmp_path):
    """Under trust `silo` a silo sends the next release only when it knows of the last one."""
    plan = small_plan(rounds=8, schedule=every(1), cohort=2)

    async def scenario(post):
        await sync(post, 0, ["analyzer", "mixer"])
        saved = b""
        for number in (1, 2, 3):
            if number == 1:
                post.begin("analyzer")
                saved = store_of(post, "analyzer").read_bytes()
                await post.greet()
            await sync(post, number, ["analyzer", "mixer"], models=post.keepers["analyzer"].own())
        put_back(post, "analyzer", saved)
        await post.greet()
        assert post.keepers["analyzer"].give_up() == [1, 2, 3]
        await post.greet()
        before = len(post.queues["silo-00"])
        for number in (1, 2, 3):
            post.release("silo-00", number)
            await post.deliver()
            assert told(post, "silo-00", before)[1] == list(range(1, number + 1))

    run(tmp_path, plan, scenario)
