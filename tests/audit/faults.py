"""Planted faults: protocols, noise sources and worlds that are not what their plan says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fedbandit import Plan, Privacy, every
from fedbandit._arrays import Flags, Floats, Indices, Integers, Words
from fedbandit.audit.adaptive_game import AdaptiveGame
from fedbandit.audit.calendar_game import CalendarGame, Scored
from fedbandit.audit.cases import Case, case, case_of
from fedbandit.audit.worlds import Batch, User, World, neighbours, telling_pair
from fedbandit.bandit.statistics import Scales, contributions
from fedbandit.privacy.noise import NoiseSource, SimulatedNoise
from fedbandit.protocol.base import Message, Protocol
from fedbandit.protocol.determinant import DeterminantRule, RuleState
from fedbandit.protocol.encoder import Encoder, Stream
from fedbandit.protocol.personal import own_entries
from fedbandit.protocol.trusts.central import CentralProtocol
from fedbandit.protocol.trusts.local import LocalProtocol
from fedbandit.protocol.trusts.secure_sum import PersonalSecureSum, SecureSumProtocol
from fedbandit.protocol.trusts.shuffle import ShuffleProtocol
from fedbandit.protocol.trusts.silo import SiloProtocol
from fedbandit.protocol.trusts.vector_sum import VectorSumProtocol

BUDGET = Privacy(4.0, 1e-5)


def small_plan(**fields: Any) -> Plan:
    """Eight releases of four users: an audit takes a fraction of a second."""
    given = {"silos": 3, "rounds": 32, "dim": 3, "privacy": BUDGET, "trust": "silo", "schedule": every(4), **fields}
    return Plan(**given)


def small_case(plan: Plan) -> Case:
    assert plan.privacy is not None
    return case_of("silo", plan, (plan.privacy.epsilon, plan.privacy.delta), trials=4_000)


def the_game(case: Case) -> CalendarGame:
    (game,) = case.games
    assert isinstance(game, CalendarGame)
    return game


def with_protocol(case: Case, protocol: Protocol) -> Case:
    """The case with another protocol behind the same promise."""
    return replace(case, games=(replace(the_game(case), protocol=protocol),))


def with_worlds(case: Case, worlds: tuple[World, World]) -> Case:
    """The case with other neighbours than the promise is for."""
    return replace(case, games=(replace(the_game(case), worlds=worlds),))


def scaled(case: Case, factor: float) -> Case:
    """Noise times `factor`."""
    protocol = case.plan.protocol
    return with_protocol(case, replace(protocol, scales=protocol.scales.times(factor)))


def made_of(kind: type[Protocol], protocol: Protocol) -> Protocol:
    return kind(protocol.encoder, protocol.scales, protocol.dim, protocol.bits, protocol.silos)


# -- the noise of a release --------------------------------------------------------------------------------------------

Draw = Callable[[Protocol, NoiseSource, tuple[int, ...], list[Integers]], Integers]


@dataclass(frozen=True)
class FaultyNoise:
    """Stands between a protocol and its source of noise: `draw` sees all that was drawn before in the chunk."""

    protocol: Protocol
    draw: Draw
    drawn: list[Integers] = field(default_factory=list)

    def next(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        self.drawn.append(self.draw(self.protocol, noise, lead, self.drawn))
        return self.drawn[-1]


def noisy(kind: type[Protocol], draw: Draw) -> type[Protocol]:
    """The protocol `kind` whose noise comes from `draw`; its memory begins anew with every run from the first batch."""

    class Faulty(kind):  # type: ignore[misc, valid-type]
        def init(self, lead: tuple[int, ...] = ()) -> Stream:
            object.__setattr__(self, "_faulty", FaultyNoise(self, draw))
            begun: Stream = super().init(lead)
            return begun

        def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
            drawn: Integers = self._faulty.next(noise, lead)
            return drawn

    return Faulty


def faulty(draw: Draw, kind: type[Protocol] = SiloProtocol, **fields: Any) -> Case:
    plan = small_plan(**fields)
    return with_protocol(small_case(plan), made_of(noisy(kind, draw), plan.protocol))


def fresh(protocol: Protocol, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
    return noise.gaussian(protocol.drawn_scales, lead)


def scaled_entries(factors: Callable[[Protocol], Floats]) -> Draw:
    """Each entry's noise times a factor of its own."""
    return lambda p, noise, lead, drawn: noise.gaussian(p.drawn_scales * factors(p), lead)


def packed(bias: float, diagonal: float, off_diagonal: float) -> Draw:
    return scaled_entries(lambda p: Scales(bias, diagonal, off_diagonal).packed(p.dim))


def one_entry(p: Protocol) -> Floats:
    factors = np.ones(p.width)
    factors[-2] = 0.85
    return factors


def same_always(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    return drawn[0] if drawn else fresh(p, noise, lead)


def by_sync_number(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    rng = np.random.default_rng(len(drawn))
    return np.broadcast_to(np.rint(rng.standard_normal(p.width) * p.drawn_scales).astype(np.int64), (*lead, p.width))


def one_seed(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """Every process begins with the same seed: what is drawn in one is drawn in the others."""
    rng = np.random.default_rng((7, len(drawn)))
    return np.rint(rng.standard_normal((*lead, p.width)) * p.drawn_scales).astype(np.int64)


def bias_is_diagonal(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    values = fresh(p, noise, lead).copy()
    diagonal = np.flatnonzero(p.scales._replace(bias=0.0, diagonal=1.0, off_diagonal=0.0).packed(p.dim))
    values[..., : p.dim] = values[..., diagonal]
    return values


def shared_by_scale(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """Numbers of equal scale get one draw."""
    values = fresh(p, noise, lead).copy()
    for scale in np.unique(p.drawn_scales):
        columns = np.flatnonzero(p.drawn_scales == scale)
        values[..., columns] = values[..., columns[:1]]
    return values


def in_time(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    now = fresh(p, noise, lead)
    return np.rint(0.3 * drawn[-1] + np.sqrt(1 - 0.09) * now).astype(np.int64) if drawn else now


def antithetic(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    return np.negative(drawn[-1]) if len(drawn) % 2 else fresh(p, noise, lead)


def far_in_time(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """One entry of a release is that of five releases before."""
    now = fresh(p, noise, lead).copy()
    if len(drawn) >= 5:
        now[..., 0] = drawn[-5][..., 0]
    return now


def bias_from_before(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """The bias stream gets what the covariance stream got one release earlier."""
    now = fresh(p, noise, lead).copy()
    if drawn:
        now[..., 0] = drawn[-1][..., p.dim]
    return now


def after_restart(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """After four releases a restart begins the same stream again."""
    return drawn[len(drawn) - 4] if len(drawn) >= 4 else fresh(p, noise, lead)


def from_a_table(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    table = np.rint(np.random.default_rng(3).standard_normal((4096, p.width)) * p.drawn_scales).astype(np.int64)
    return np.asarray(table[noise.words(lead) % np.uint64(len(table))])


def every_other(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    now = fresh(p, noise, lead)
    return now if len(drawn) % 2 == 0 else np.zeros_like(now)


def off_centre(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """Absolute values where signs were forgotten for one entry in twenty."""
    now = fresh(p, noise, lead).copy()
    now[..., 1] = np.where(noise.words(lead) % np.uint64(20) == 0, np.abs(now[..., 1]), now[..., 1])
    return now


def of_law(law: Callable[[np.random.Generator, tuple[int, ...]], Floats]) -> Draw:
    """The claimed variance, another law."""

    def draw(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
        rng = np.random.default_rng(int(noise.words(())))
        return np.rint(law(rng, (*lead, p.width)) * p.drawn_scales).astype(np.int64)

    return draw


def cut_off(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Clipped at 2.5 deviations, and made up for."""
    clipped = np.clip(rng.standard_normal(shape), -2.5, 2.5)
    return np.asarray(clipped / 0.984)


def coarse(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """On a grid as wide as the noise."""
    return np.rint(rng.standard_normal(shape))


def same_at_every_silo(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    one = fresh(p, noise, (*lead[:-1], 1))
    return np.broadcast_to(one, (*lead, p.width))


def alike_silos(p: Protocol, noise: NoiseSource, lead: tuple[int, ...], drawn: list[Integers]) -> Integers:
    """A tenth of the variance is common to all silos."""
    own, common = fresh(p, noise, lead), fresh(p, noise, (*lead[:-1], 1))
    return np.asarray(np.rint(np.sqrt(0.9) * own + np.sqrt(0.1) * common).astype(np.int64))


# -- shares ------------------------------------------------------------------------------------------------------------

Mask = Callable[[Integers, NoiseSource, list[Words]], Words]


def masked(mask: Mask) -> Case:
    """A secure sum whose mask comes from `mask`, which sees the release and all masks of the chunk so far."""

    class Faulty(SecureSumProtocol):
        def init(self, lead: tuple[int, ...] = ()) -> Stream:
            object.__setattr__(self, "_masks", [])
            return super().init(lead)

        def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
            after, (release,) = Protocol.release(self, state, batch, noise)
            masks: list[Words] = self._masks  # type: ignore[attr-defined]
            masks.append(mask(release, noise, masks))
            return after, (masks[-1], release.view(np.uint64) - masks[-1])

    plan = small_plan(trust="secure-sum", colluding=1)
    protocol = plan.protocol
    assert isinstance(protocol, SecureSumProtocol)
    fields = (protocol.encoder, protocol.scales, protocol.dim, protocol.bits, protocol.silos, protocol.colluding)
    return with_protocol(small_case(plan), Faulty(*fields))


def no_mask(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    """The mixer gets the release itself and the analyzer nothing."""
    return release.view(np.uint64).copy()


def one_mask_for_all_syncs(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    return masks[0] if masks else noise.words(release.shape)


def one_mask_for_all_silos(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    one = noise.words((*release.shape[:-2], 1, release.shape[-1]))
    return np.broadcast_to(one, release.shape).copy()


def one_mask_per_process(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    return np.random.default_rng(1).integers(0, 2**64, size=release.shape, dtype=np.uint64)


def one_word_for_all_entries(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    return np.broadcast_to(noise.words((*release.shape[:-1], 1)), release.shape).copy()


def half_a_mask(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    return noise.words(release.shape) & np.uint64(2**32 - 1)


def mask_without_low_bits(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    return noise.words(release.shape) & ~np.uint64(2**11 - 1)


def mask_that_follows(release: Integers, noise: NoiseSource, masks: list[Words]) -> Words:
    """The top bit of every other mask is the sign of what it hides."""
    sign = (release < 0).astype(np.uint64) << np.uint64(63)
    words = noise.words(release.shape)
    followed = (words & np.uint64(2**63 - 1)) | sign
    return np.where(words & np.uint64(1), followed, words)


# -- other protocols ---------------------------------------------------------------------------------------------------


class OneRedraw(SiloProtocol):
    """Crashed after the first release, drew it anew and sent it again."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        again = super().release(state, batch, noise)[1] if state.done == 0 else ()
        return after, (*message, *again)


class OneDrawForBoth(PersonalSecureSum):
    """A silo's own release has the noise of its shared release, made wider: the two together show the data."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, (*shares, _) = super().release(state, batch, noise)
        _, encoded = self.encoder.step(state, batch)
        drawn = self._reused(sum(shares, start=np.uint64(0)).view(np.int64) - encoded, noise)
        wider = np.where(own_entries(self.dim, self.columns), self.own_drawn_scales / self.drawn_scales, 0.0)
        own = np.where(own_entries(self.dim, self.columns), encoded, 0) + np.rint(drawn * wider).astype(np.int64)
        return after, (*shares, own)

    def _reused(self, drawn: Integers, noise: NoiseSource) -> Integers:
        """The draw that is used for the own release."""
        return drawn


class OneDrawForTwoSilos(OneDrawForBoth):
    """The own release has the noise of another silo's shared release."""

    def _reused(self, drawn: Integers, noise: NoiseSource) -> Integers:
        return np.roll(drawn, 1, axis=-2)


class OneDrawForBothLater(OneDrawForBoth):
    """The own release has the noise of the shared release before it."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        if not state.done:
            self.kept.clear()
        return super().release(state, batch, noise)

    def _reused(self, drawn: Integers, noise: NoiseSource) -> Integers:
        last = self.kept[-1] if self.kept else noise.gaussian(self.drawn_scales, drawn.shape[:-1])
        self.kept.append(drawn)
        return last

    @cached_property
    def kept(self) -> list[Integers]:
        """The draws so far."""
        return []


class LosesMemory(SiloProtocol):
    """Killed in the middle of its run, it begins again with an encoder that remembers no batch."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        if state.done == self.encoder.size // 2:
            state = state._replace(memory=tuple(np.zeros_like(array) for array in state.memory))
        return super().release(state, batch, noise)


class NodesTwice(SiloProtocol):
    """Releases every node of the tree a second time, with new noise."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        return after, (*message, *super().release(state, batch, noise)[1])


class SizeByData(SiloProtocol):
    """Sends one array more where a batch has a large first entry."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        large = state.done == 0 and is_large(self, batch)
        return after, (*message, np.zeros_like(message[0])) if large else message


class RandomPadding(SiloProtocol):
    """Sends an array of random length more, whatever the data."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        return after, (*message, padding(message[0], int(noise.words(()) % np.uint64(50))))


class PaddingByData(SiloProtocol):
    """Random padding, a little longer where a batch has a large first entry."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        after, message = super().release(state, batch, noise)
        more = 25 if state.done == 0 and is_large(self, batch) else 0
        return after, (*message, padding(message[0], more + int(noise.words(()) % np.uint64(50))))


def is_large(protocol: Protocol, batch: Integers) -> bool:
    return bool(batch[..., 0].max() > LARGE * 2**protocol.bits)


LARGE = 0.3


def padding(like: Integers, length: int) -> Integers:
    return np.zeros((*like.shape[:-1], 100 + length), dtype=np.int64)


class HalfTheBits(VectorSumProtocol):
    """Every second privacy bit is a constant."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        node = self.node(state.done + 1)
        trials = node.noise_bits * (node.users // self.silos)
        after, _ = super().release(state, batch, noise)
        ones = (state.memory[0] + batch)[..., node.level, :]
        return after, (ones + noise.binomial(trials // 2, 0.25, ones.shape) + trials // 8,)


class BitsAtOneSilo(VectorSumProtocol):
    """The first silo draws the noise bits of all silos: enough in the total, and the silo knows all of it."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        node = self.node(state.done + 1)
        after, _ = super().release(state, batch, noise)
        ones = (state.memory[0] + batch)[..., node.level, :]
        bits = noise.binomial(node.trials, 0.25, ones.shape)
        bits[..., 1:, :] = 0
        return after, (ones + bits,)


class SameBitsAtEverySilo(VectorSumProtocol):
    """All silos draw the same noise bits: whoever knows those of one knows those of all."""

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        node = self.node(state.done + 1)
        after, _ = super().release(state, batch, noise)
        ones = (state.memory[0] + batch)[..., node.level, :]
        trials = node.noise_bits * (node.users // self.silos)
        return after, (ones + noise.binomial(trials, 0.25, ones[..., :1, :].shape),)


class NotShuffled(ShuffleProtocol):
    """The mixer passes messages on in the order of the silos."""

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        return held


class Turned(ShuffleProtocol):
    """The mixer begins anywhere and then goes through the silos in their order."""

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        begins = noise.words(held[0].shape[:-2]) % np.uint64(self.silos)
        order = (np.arange(self.silos) + begins[..., None].astype(np.int64)) % self.silos
        return (np.take_along_axis(held[0], order[..., None], axis=-2),)


class OneOrderForAllSyncs(ShuffleProtocol):
    """The mixer shuffles once, and keeps that order."""

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        order = self.kept.setdefault(held[0].shape, np.argsort(noise.words(held[0].shape[:-1]), axis=-1))
        return (np.take_along_axis(held[0], order[..., None], axis=-2),)

    @cached_property
    def kept(self) -> dict[tuple[int, ...], Indices]:
        """The order in every run."""
        return {}


class SameNoiseBehindMixer(ShuffleProtocol):
    """Silos draw once, and use that noise in every release."""

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        return self.kept.setdefault(lead, super().draw(noise, lead))

    @cached_property
    def kept(self) -> dict[tuple[int, ...], Integers]:
        """The draw."""
        return {}


def shuffled(kind: type[ShuffleProtocol]) -> Case:
    """A plan whose promise needs the mixer, with another protocol behind it."""
    budget = Privacy(0.3, 1e-4)
    plan = Plan(300, 2, 2, budget, trust="shuffle", mechanism="batches", calibration="exact", schedule=every(1))
    case = case_of("plan", plan, (budget.epsilon, budget.delta), trials=400)
    return with_protocol(case, kind(**{f.name: getattr(plan.protocol, f.name) for f in fields(plan.protocol)}))


@dataclass
class OneSourceForBoth:
    """Noise of the determinant rule and of the releases that are not independent: `again` says what comes again."""

    source: SimulatedNoise
    again: Literal["first look", "last look", "release before", "every interval"]
    looks: list[Floats] = field(default_factory=list)  # since the last release
    seen: Floats | None = None  # by each run last
    released: Floats | None = None
    interval: dict[int, Floats] = field(default_factory=dict)

    def look(self, scales: Floats, lead: tuple[int, ...]) -> Integers:
        """The noise of one more node of the rule's tree."""
        drawn = self.source.generator.standard_normal((*lead, len(scales)))
        if self.again == "release before" and self.released is not None and not self.looks:
            drawn = self.released[:, 0, -len(scales) :]
        if self.again == "every interval":
            drawn = self.interval.setdefault(len(self.looks), drawn)
        self.looks.append(drawn)
        return np.rint(drawn * scales).astype(np.int64)

    def looked(self, waiting: Flags) -> None:
        """Note which runs have looked at the newest node."""
        self.seen = self.looks[-1] if self.seen is None else np.where(waiting[:, None], self.looks[-1], self.seen)

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        """The noise of a release."""
        drawn = self.source.generator.standard_normal((*lead, len(scales)))
        again = {"first look": self.looks[0], "last look": self.seen}.get(self.again)
        if again is not None:
            drawn[:, 0, -again.shape[-1] :] = again
        self.looks, self.seen, self.released = [], None, drawn
        return np.rint(drawn * scales).astype(np.int64)


@dataclass(frozen=True)
class _RuleOfOneSource(DeterminantRule):
    """The rule, which tells the source of its noise which runs still wait."""

    def step(self, state: RuleState, covariance: Integers, root: Floats, noise: NoiseSource) -> tuple[RuleState, Flags]:
        assert isinstance(noise, OneSourceForBoth)
        if not state.waited:
            object.__setattr__(self, "_waiting", np.ones(len(covariance), dtype=bool))
        looking = _Looking(noise)
        after, asks = super().step(state, covariance, root, looking)
        noise.looked(self._waiting)  # type: ignore[attr-defined]
        object.__setattr__(self, "_waiting", self._waiting & ~asks)  # type: ignore[attr-defined]
        return after, asks


@dataclass(frozen=True)
class _Looking(SimulatedNoise):
    """What the rule draws from."""

    generator: Any  # the source for both

    def gaussian(self, scales: Floats, lead: tuple[int, ...] = ()) -> Integers:
        drawn: Integers = self.generator.look(scales, lead)
        return drawn


@dataclass(frozen=True)
class _GameOfOneSource(AdaptiveGame):
    again: Any = None

    def play(self, world: int, trials: int, noise: NoiseSource) -> Scored:
        assert isinstance(noise, SimulatedNoise)
        source: Any = OneSourceForBoth(noise, self.again)
        return super().play(world, trials, source)


def one_source(again: str) -> Case:
    """The private determinant rule, where noise `again` is what was drawn before."""
    whole = case("private-adaptive", 1.0, 1e-5)
    game = whole.games[1]
    assert isinstance(game, AdaptiveGame)
    values = {f.name: getattr(game, f.name) for f in fields(game)}
    rule = _RuleOfOneSource(**{f.name: getattr(game.rule, f.name) for f in fields(game.rule)})
    return replace(whole, games=(_GameOfOneSource(**{**values, "rule": rule}, again=again),))


class OneUserNoise(LocalProtocol):
    """The users of a batch share the noise of one."""

    def privatise(self, sums: Integers, users: int, noise: NoiseSource) -> Integers:
        return sums + noise.gaussian(self.drawn_scales, sums.shape[:-1])


class LateServer(CentralProtocol):
    """The server forgets its noise until the second sync."""

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        (sums,) = held
        total = sums.sum(axis=-2, keepdims=True)
        return (total,) if self._first() else super().mix(held, noise)

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        object.__setattr__(self, "_mixed", 0)
        return super().init(lead)

    def _first(self) -> bool:
        mixed: int = self._mixed  # type: ignore[attr-defined]
        object.__setattr__(self, "_mixed", mixed + 1)
        return mixed == 0


# -- other neighbours than the promise is for --------------------------------------------------------------------------


def with_pair(change: Callable[[User], User], **fields: Any) -> Case:
    """Somebody whom the sensitivity does not count on."""
    case = small_case(small_plan(**fields))
    pair = telling_pair(case.plan)
    game = the_game(case)
    return with_worlds(case, neighbours(case.plan, game.silos, (change(pair[0]), change(pair[1]))))


def coming_often(times: int) -> Case:
    """A plan for one visit, a user who comes more often."""
    case = small_case(small_plan())
    often = case.plan.changed(privacy=replace(BUDGET, participations=times))
    return with_worlds(case, neighbours(often, the_game(case).silos, telling_pair(case.plan)))


def at_two_silos() -> Case:
    """A plan for one silo per user, a user who goes to two of a secure sum."""
    case = small_case(small_plan(trust="secure-sum", colluding=0))
    both = case.plan.changed(privacy=replace(BUDGET, silos_per_user=2))
    return with_worlds(case, neighbours(both, the_game(case).silos, telling_pair(case.plan)))


def coarsely_rounded(bits: int) -> Case:
    """Contributions on a grid of 2^-bits that the sensitivity does not know of: a unit vector that is rounded up."""
    case = small_case(small_plan())
    game, plan = the_game(case), case.plan
    own = [contributions(user.x, user.y, bits) << (plan.bits - bits) for user in rounded_up(bits)]
    worlds = []
    for world, point in zip(game.worlds, own, strict=True):
        fixed = world[0].fixed.copy()
        fixed[:1, :1] = point
        worlds.append((replace(world[0], fixed=fixed), *world[1:]))
    return with_worlds(case, (worlds[0], worlds[1]))


def rounded_up(bits: int) -> tuple[User, User]:
    rng = np.random.default_rng(0)
    users = [User(x / np.linalg.norm(x), 1.0) for x in rng.standard_normal((300, 3))]
    points = np.array([contributions(user.x, user.y, bits) * 2.0**-bits for user in users])
    points[:, 3:] *= np.where([True, False, False, True, False, True], 1.0, np.sqrt(2))
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
    one, other = np.unravel_index(np.argmax(gaps), gaps.shape)
    return users[one], users[other]


@dataclass(frozen=True)
class Apart(Encoder):
    """C = [[1, 0], [-1, 1]]: columns that point apart."""

    def row(self, k: int) -> Floats:
        return np.array([[1.0], [-1.0, 1.0]][k])

    def decoder_row(self, k: int) -> Floats:
        return np.array([[1.0], [2.0, 1.0]][k])


def late_reward(counted: bool) -> Case:
    """A person's reward that comes in the second batch instead of the first, under columns that point apart.

    The noise is that of the largest move within one batch, of squared length 9, or, `counted`, of the late one, 10.
    """
    case = small_case(small_plan(rounds=8, mechanism="batches"))
    encoder, game = Apart(2), the_game(case)
    norm = encoder.column_norm * (math.sqrt(10 / 9) if counted else 1.0)
    protocol = replace(case.plan.protocol, encoder=encoder, scales=case.plan.protocol.scales.times(norm))
    person = contributions(telling_pair(case.plan)[0].x, 1.0, case.plan.bits)
    batches = [without_choice(batch) for batch in game.worlds[0]]
    worlds = []
    for comes in (0, 1):
        fixed = [np.zeros_like(batch.fixed) for batch in batches]
        fixed[comes][0, 0] = person
        worlds.append(tuple(replace(batch, fixed=own) for batch, own in zip(batches, fixed, strict=True)))
    return with_protocol(with_worlds(case, (worlds[0], worlds[1])), protocol)


def without_choice(batch: Batch) -> Batch:
    return replace(batch, actions=batch.actions[:, :0], rewards=batch.rewards[:, :0], rounds=())


def shifted_calendar() -> Case:
    """A calendar that counts requests: one request more moves the last user of every batch into the next."""
    case = small_case(small_plan(trust="silo", mechanism="toeplitz"))
    game, plan = the_game(case), case.plan
    users = [*np.eye(3)] * 20
    points = contributions(np.array(users[: plan.rounds]), np.ones(plan.rounds), plan.bits)
    moved = np.concatenate([np.zeros_like(points[:1]), points[:-1]])  # a request that is answered, and nothing else
    blank = [
        replace(batch, actions=batch.actions[:, :0], rewards=batch.rewards[:, :0], rounds=())
        for batch in game.worlds[0]
    ]
    worlds = []
    for stream in (points, moved):
        parts = np.split(stream, plan.times[:-1])
        worlds.append(tuple(replace(b, fixed=part[None]) for b, part in zip(blank, parts, strict=True)))
    return with_worlds(case, (worlds[0], worlds[1]))


def first_entry_large(kind: type[Protocol]) -> Case:
    """The user alone in the first batch, whose first entry is large in one world and small in the other."""
    case = small_case(small_plan())
    game = the_game(case)
    low, high = (
        tuple(
            replace(b, fixed=b.fixed[:, :1], actions=b.actions[:, :0], rewards=b.rewards[:, :0], rounds=()) for b in w
        )
        for w in game.worlds
    )
    first = [world[0].fixed[0, 0, 0] * 2.0**-case.plan.bits for world in (low, high)]
    assert max(first) > LARGE > min(first)
    return with_protocol(with_worlds(case, (low, high)), made_of(kind, case.plan.protocol))
