"""Members that come, go and get new keys in a history: what the operator signs, and who finds it in their directory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from fedbandit.federation.setup.agreement import Agreement
from fedbandit.federation.setup.editions import Edition
from fedbandit.federation.setup.party import Party
from fedbandit.federation.setup.roll import Roll
from fedbandit.federation.wire.keys import PartyKeys
from tests.torture.simulation.settings import PERIOD, Setting

__all__ = ["Change", "changes", "lists", "newcomer", "with_a_free_seat"]

MOST = 3  # editions in a history
FINDERS = ("analyzer", "analyzer", "analyzer", "mixer", "silo")  # who is given the file, unless there is no such party


class Change(NamedTuple):
    """An edition, and when somebody puts it, with those before it, into whose directory."""

    edition: Edition
    at: float  # seconds
    finder: str

    def __str__(self) -> str:
        edition = self.edition
        what = f"{edition.change} {edition.name}".strip()
        return f"edition {edition.number}: {what} from sync {edition.from_sync} on, at {self.at:.0f} to {self.finder}"


def with_a_free_seat(setting: Setting) -> Setting | None:
    """The same federation before its last silo has joined; None where the others make no cohort."""
    charter, last = setting.agreement, setting.agreement.silos[-1]
    if len(charter.silos) - 1 < setting.plan.smallest_cohort:
        return None
    few = replace(charter, parties=tuple(party for party in charter.parties if party.name != last))
    parties = {name: Party(few, party.keys, party.public) for name, party in setting.parties.items()}
    return setting._replace(parties=parties)


def newcomer(setting: Setting) -> str | None:
    """The silo that the federation's file does not name yet, if there is one."""
    return next((name for name in setting.parties if setting.agreement.member(name) is None), None)


def changes(chance: random.Random, setting: Setting, lying: Sequence[str]) -> list[Change]:
    """What the operator signs in a history. Whoever lies is not dismissed: nobody can tell when it has heard of it."""
    roll, operator, made = Roll(setting.agreement), setting.operator, list[Change]()
    syncs, joins = len(setting.plan.ticks), newcomer(setting)
    count = chance.randint(1, MOST)
    entry = chance.randrange(count) if joins is not None else count
    for number, since in enumerate(sorted(chance.randrange(syncs) for _ in range(count))):
        edition, key = _signed(chance, setting, roll, lying, since, joins if number == entry else None)
        signed = roll.next(edition, operator.signer)
        operator = key or operator
        made.append(Change(signed, chance.uniform(0.0, 1.2 * (since + 0.5) * PERIOD), _finder(chance, roll, lying)))
    return made


def lists(charter: Agreement, made: Sequence[Change]) -> list[Roll]:
    """Who is a member of which sync, for those who have heard of none of the changes, of one, and so on."""
    return [Roll(charter, [change.edition for change in made[:count]]) for count in range(len(made) + 1)]


def _signed(
    chance: random.Random, setting: Setting, roll: Roll, lying: Sequence[str], since: int, joins: str | None
) -> tuple[Edition, PartyKeys | None]:
    """A change that makes a federation, and the operator's new keys, if it is about those."""
    now = roll.newest
    if joins is not None:
        return Edition(1, "", since, "admit", joins, setting.parties[joins].public), None
    drawn, honest = chance.random(), [name for name in now.silos if name not in lying]
    if drawn < 0.3 and len(now.silos) > setting.plan.smallest_cohort and honest:
        return Edition(1, "", since, "dismiss", chance.choice(honest)), None
    unchanged = [one.name for one in now.parties if one.identity == setting.parties[one.name].keys.identity]
    if drawn < 0.9 and unchanged:
        name = chance.choice(unchanged)
        fresh = setting.spare[name].public(name, now.party(name).role)
        return Edition(1, "", since, "rotate", name, fresh), None
    keys = setting.successor
    first, second = keys.broker.public_key().public_bytes_raw(), PartyKeys(keys.seeds).signer.public_key()
    return Edition(1, "", since, "operator", operator=first, signer=second.public_bytes_raw()), keys


def _finder(chance: random.Random, roll: Roll, lying: Sequence[str]) -> str:
    """Who passes it on: somebody who lies may not, and a newcomer is heard by nobody who has not heard of it."""
    role = chance.choice(FINDERS)
    found = [one.name for one in roll.charter.parties if one.role == role and roll.newest.member(one.name) is not None]
    finder = chance.choice(found) if found else "analyzer"
    return finder if finder not in lying else "analyzer"
