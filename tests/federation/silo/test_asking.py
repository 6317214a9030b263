"""A silo's question to the others, and what it says again, without a broker."""

import asyncio
from typing import Any, cast

import numpy as np
import pytest

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.silo import agent as agent_module
from fedbandit.federation.silo.agent import LEAD, TIDY, Agent
from fedbandit.federation.silo.outgoing import Sealer
from fedbandit.federation.silo.serving import Silo
from fedbandit.federation.states import ReleaseState
from fedbandit.federation.store.seen import SeenStore
from fedbandit.federation.timing import TicksOverdue, Timing
from fedbandit.federation.wire import heads
from fedbandit.federation.wire.envelopes import FORMAT
from fedbandit.federation.wire.parcels import Outcome, SignedOutcome
from fedbandit.schedule import every
from tests.federation.small import small_plan

DEADLINE = 10.0
PATIENCE = 30.0  # seconds


class Recorder:
    """A link that keeps what is published."""

    def __init__(self):
        self.ids: list[str] = []
        self.sent: list[bytes] = []

    async def publish(self, subject, data, message_id):
        self.ids.append(message_id)
        self.sent.append(data)


@pytest.fixture
def joined(tmp_path):
    """An agent, its link, and the time that it goes by."""
    plan, time = small_plan(schedule=every(1), rounds=4), [0.0]
    homes = founding.local(tmp_path / "homes", plan, [f"silo-{n}" for n in range(3)], Timing(DEADLINE, start=0.0))
    home = next(home for home in homes if home.settings.name == "silo-0")
    party = home.party()
    sealer = Sealer(party)
    secret, timing = home.keys.seeds["salt"], party.agreement.timing
    with Silo.open(tmp_path / "s.db", plan, name="silo-0", secret=secret, timing=timing, sealer=sealer) as silo:
        yield Agent(silo, party, sealer, steady=lambda: time[0]), Recorder(), time


def test_a_question_that_could_not_be_stored_is_not_asked(joined, monkeypatch):
    """It was asked all the same from then on, and the answers to it were never recognised: the silo drew nothing."""
    agent, link, _ = joined
    ask, failures = SeenStore.ask, iter([OSError("No space left on device")])

    def fails_at_first(self, question):
        for error in failures:
            raise error
        ask(self, question)

    monkeypatch.setattr(SeenStore, "ask", fails_at_first)
    with pytest.raises(OSError, match="space"):
        asyncio.run(agent.introduce(cast(Any, link)))
    asyncio.run(agent.introduce(cast(Any, link)))
    (asked,) = {message_id.split(".")[3] for message_id in link.ids}
    assert agent.seen.asked(bytes.fromhex(asked))


def test_a_model_that_comes_while_the_store_does_not_work_is_not_refused(joined, tmp_path, monkeypatch):
    """It was, and acknowledged: the silo had no model of that sync until the analyzer happened to say it again."""
    agent, link, _ = joined
    agent._sealer.clear()
    agent.silo.decide([[1.0, 0.0]])
    assert agent.silo.tick() == [0]
    asyncio.run(agent.send(cast(Any, link)))
    analyzer = Home.load(tmp_path / "homes" / "analyzer").party()
    first = heads.link(bytes(32), f"{analyzer.agreement.id} {agent.plan.hash}".encode())
    outcome = Outcome(np.zeros(agent.plan.protocol.width), analyzer.agreement.cohort(["silo-0", "silo-1"]))
    model = SignedOutcome(outcome, first, analyzer.signed(1, heads.link(first, outcome.encode())))
    envelope = analyzer.seal("model", agent.party.public, 0, model.encode())
    of, failures = SeenStore.of, iter([OSError("the database is away")])

    def fails_at_first(self, party):
        for error in failures:
            raise error
        return of(self, party)

    monkeypatch.setattr(SeenStore, "of", fails_at_first)
    monkeypatch.setattr(agent_module, "RETRY", 0.01)
    asyncio.run(agent.handle([envelope]))
    assert (agent.refused.count, agent.silo.version) == (0, 1)


def test_a_release_that_came_to_nothing_is_sent_again_unchanged(joined):
    agent, link, time = joined
    agent._sealer.clear()
    agent.silo.decide([[1.0, 0.0]])
    assert agent.silo.tick() == [0]
    asyncio.run(agent.send(cast(Any, link)))
    asyncio.run(agent.send(cast(Any, link)))
    assert len(link.sent) == 2  # one for each receiver
    assert agent.silo.store.in_state(1, ReleaseState.SENT) == [0]
    time[0] += DEADLINE + 1
    asyncio.run(agent.send(cast(Any, link)))
    assert link.sent[2:] == link.sent[:2]
    assert len(set(link.ids)) == 4  # the broker would not take the same id again


def test_what_was_drawn_unnoticed_is_sent_all_the_same(joined, monkeypatch):
    """Not every draw is one of the agent's own ticks: an application may have ticked, and of several ticks that were
    due at once the last may have failed. A silo that waited for its own next tick would send nothing until then."""
    agent, link, time = joined
    monkeypatch.setattr(agent_module, "LOOK", 0.001)
    agent._sealer.clear()
    looked, send = [], agent.send

    async def noted(link):
        await send(link)
        looked.append(time[0])

    monkeypatch.setattr(agent, "send", noted)

    async def at_work():
        agent._news.set()
        tasks = [asyncio.create_task(work) for work in (agent._ticks(), agent._sends(cast(Any, link)))]
        try:
            async with asyncio.timeout(PATIENCE):
                while not looked:
                    await asyncio.sleep(0.001)
                agent.silo.decide([[1.0, 0.0]])
                assert agent.silo.tick() == [0]
                while len(link.sent) < 2:  # one for each receiver
                    time[0] += LEAD
                    await asyncio.sleep(0.001)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(at_work())


def test_the_next_release_does_not_put_off_tidying_up(joined, monkeypatch):
    """Where ticks come faster than that, and no model does, raw rows would stay in the files for good."""
    agent, _, time = joined
    agent._sealer.clear()
    tidied: list[float] = []

    def tidy():
        tidied.append(time[0])
        return True

    monkeypatch.setattr(agent.silo.ticker, "tidy", tidy)

    def tick(moment, people):
        time[0] = moment
        for _ in range(people):
            agent.silo.decide([[1.0, 0.0]])
        asyncio.run(agent.tick())

    tick(1.0, people=0)
    for moment in (10.0, 10.0 + TIDY / 2, 9.0 + TIDY):
        tick(moment, people=1)
    assert tidied == [1.0]  # what a killed process may have left
    tick(11.0 + TIDY, people=0)
    assert tidied == [1.0, 11.0 + TIDY]
    tick(12.0 + 3 * TIDY, people=0)
    assert len(tidied) == 2


def test_ticks_that_are_held_back_are_said_once_in_the_log(joined, monkeypatch, caplog):
    """The log ended with "it draws releases" while nothing was drawn; only /readyz told why."""
    agent, _, _ = joined

    def held():
        raise TicksOverdue(3)

    monkeypatch.setattr(agent.silo.ticker, "due", held)
    for _ in range(3):
        asyncio.run(agent.tick())
    assert [record.levelname for record in caplog.records if "3 ticks are overdue" in record.message] == ["WARNING"]
    assert "3 ticks are overdue" in agent.troubles["clock"]

    async def all_answered():
        return {"analyzer": heads.Greeting(FORMAT, FORMAT)}

    caplog.set_level("INFO")
    monkeypatch.setattr(agent.greetings, "answers", all_answered)
    asyncio.run(agent.judge())
    assert "it draws releases once ticks are no longer held back" in caplog.messages[-1]


def test_a_silo_that_has_not_heard_of_the_newest_members_draws_nothing(joined):
    """Put back to before it was dismissed, it drew a release more, which was spent for nothing."""
    agent, link, _ = joined
    asyncio.run(agent.introduce(link))
    newer = heads.Greeting(FORMAT, FORMAT, agent.greetings.question, edition=1, members=b"x" * 32)
    for edition, drawn in ((newer, False), (newer._replace(edition=0), True)):
        for name in ("mixer", "analyzer"):
            agent.seen.answered(agent.greetings.question, name, edition.encode())
        asyncio.run(agent.judge())
        assert (agent._sealer.held is None) == drawn
        assert drawn or "newer members" in agent.problem
