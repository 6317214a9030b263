"""The protocol triple P = (R, S, A) of the paper, and what all trust models share.

A batch goes through `collect` (users to a batch), `release` (R: encode and add noise), `mix` (S) and `decode` (A:
prefix sums). One implementation serves the simulator, the audit and the live federation. It is vectorised over any
leading axes; the silos' axis is the last but one. Messages are tuples of integer arrays, and states are values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import numpy as np

from fedbandit._arrays import Floats, Integers, Numbers
from fedbandit.bandit.statistics import Scales, width
from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.encoder import Encoder, Stream

if TYPE_CHECKING:
    from fedbandit.protocol.adversaries import Adversary

__all__ = ["SILOS", "Message", "Part", "Protocol"]

Message = tuple[Numbers, ...]  #: what a silo sends in one sync, one array per part
SILOS = -2  #: the silos' axis in messages of a whole federation


class Part(NamedTuple):
    """One array of a silo's message: who reads it, and how it gets there. What the silo itself reads is not sent."""

    reader: Literal["mixer", "analyzer", "silo"] = "analyzer"
    dtype: type[np.int64] | type[np.uint64] = np.int64
    blind: bool = False  # the mixer carries it to the analyzer, cannot read it, and strips it of its sender

    @property
    def through_mixer(self) -> bool:
        """Whether this part passes through S."""
        return self.blind or self.reader == "mixer"


@dataclass(frozen=True)
class Protocol(ABC):
    """R, S and A over one encoder, with Gaussian noise at the silo (or none: `scales` zero) and S the identity.

    `scales` are the standard deviations of one silo's noise, in natural units; releases are integers in units of
    2^-(bits + encoder.fraction_bits).
    """

    encoder: Encoder
    scales: Scales
    dim: int
    bits: int
    silos: int

    parts: ClassVar[tuple[Part, ...]] = (Part(),)  # the parts of one silo's message
    sends: ClassVar[str] = "noisy sums of one batch, to the analyzer"  # for the ledger
    needs_points: ClassVar[bool] = False  # True: `collect` must see each user; their sum is not enough
    waits: ClassVar[bool] = False  # True: a message depends on which of the earlier ones arrived
    mixer_draws: ClassVar[bool] = False  # True: S draws noise of its own

    @property
    def width(self) -> int:
        """How many numbers one packed statistic has."""
        return width(self.dim)

    @property
    def release_bits(self) -> int:
        """The bits of the release grid: a release is an integer multiple of 2^-release_bits."""
        return self.bits + self.encoder.fraction_bits

    @property
    def widest_noise(self) -> float:
        """The largest standard deviation that a silo draws."""
        return max(self.scales)

    @property
    def sent_parts(self) -> int:
        """How many arrays of a message leave the silo."""
        return sum(part.reader != "silo" for part in self.parts)

    @property
    def has_mixer(self) -> bool:
        """Whether there is a third party S; without one, the analyzer does what `mix` does."""
        return any(part.through_mixer for part in self.parts)

    # -- R, at the silo ---------------------------------------------------------------------------------------------

    def init(self, lead: tuple[int, ...] = ()) -> Stream:
        """A silo's state before its first batch; `lead` are leading axes, e.g. (runs, silos)."""
        return self.encoder.init((*lead, self.width))

    def collect(self, state: Stream, points: Integers, noise: NoiseSource) -> Integers:
        """What the next batch keeps of its users' contributions (..., users, width): here their sum."""
        return self.privatise(points.sum(axis=-2), points.shape[-2], noise)

    def privatise(self, sums: Integers, users: int, noise: NoiseSource) -> Integers:
        """What users do to their own data before the silo sees it: nothing, except in the local model."""
        return sums

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        """R: encode the next batch (..., width) and add this silo's noise."""
        state, encoded = self.encoder.step(state, batch)
        return state, (encoded + self.draw(noise, batch.shape[:-1]),)

    def without(self, state: Stream) -> Stream:
        """R's state after a batch that nobody is in, and of which nothing is ever sent."""
        return self.encoder.step(state, np.zeros(self.width, dtype=np.int64))[0]

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        """The noise of one release, in release units (*lead, width)."""
        scales = self.drawn_scales
        return noise.gaussian(scales, lead) if scales.any() else np.zeros((*lead, self.width), dtype=np.int64)

    @cached_property
    def drawn_scales(self) -> Floats:
        """`scales` of every packed number, in release units (width,)."""
        return self.scales.packed(self.dim) * 2.0**self.release_bits

    def release_scales(self, users: int) -> Floats:
        """Standard deviations in the release of a batch of `users` users, in release units (width,)."""
        return self.drawn_scales

    def outgoing(self, drawn: Sequence[Message], arrived: Mapping[int, Message]) -> Message:
        """What a silo sends now; `drawn` are all its releases so far, `arrived` its messages that arrived, by sync.

        Here it is the last release drawn, whatever became of the earlier ones: a silo that was away is left out. (Where
        the noise of a sync comes from the other silos in it, that noise would not cover missed releases that are folded
        into a later one.)
        """
        return drawn[-1]

    def kept_weights(self, missed: Collection[int], sync: int) -> Floats:
        """The weight of each batch l <= sync in the sum decoded at `sync`, for a silo that was away at `missed`.

        It is A[sync, l] - sum over missed j of B[sync, j] C[j, l]. It is the same for bias and covariance, so the
        regression stays unbiased with a little less data. It lies between 0 and A[sync, l] where B and C have no
        negative entries.
        """
        weights = self.encoder.target_row(sync)
        decoder = self.encoder.decoder_row(sync)
        for j in missed:
            if j <= sync:
                weights[: j + 1] -= decoder[j] * self.encoder.row(j)
        return weights

    # -- S, the third party -----------------------------------------------------------------------------------------

    def mix(self, held: Message, noise: NoiseSource) -> Message:
        """S, applied to the arrays that it holds, (..., silos, width) each: here the identity."""
        return held

    @property
    def mixed_parts(self) -> tuple[int, ...]:
        """The parts of a message that `mix` is applied to: those that pass through S, or all if there is no mixer."""
        sent = ((i, part) for i, part in enumerate(self.parts) if part.reader != "silo")
        return tuple(i for i, part in sent if part.through_mixer or not self.has_mixer)

    def passed_on(self, sent: Message, noise: NoiseSource) -> Message:
        """What A holds of a whole federation's messages: S's parts after mixing, A's own as they were sent."""
        mixed = iter(self.mix(tuple(sent[i] for i in self.mixed_parts), noise))
        return tuple(next(mixed) if i in self.mixed_parts else array for i, array in enumerate(sent))

    # -- A, at the analyzer -----------------------------------------------------------------------------------------

    def init_analyzer(self, lead: tuple[int, ...] = ()) -> Stream:
        """The analyzer's state before the first sync."""
        return self.encoder.init_decoder((*lead, self.width))

    def total(self, held: Message) -> Numbers:
        """The sum over silos of what A holds."""
        return np.asarray(held[0].sum(axis=SILOS))

    def decode(self, state: Stream, held: Message) -> tuple[Stream, Floats]:
        """A: add up the silos and decode the prefix sum, in natural units (..., width)."""
        state, prefix = self.encoder.decode_step(state, self.total(held))
        return state, prefix * 2.0**-self.bits

    def skip(self, state: Stream, lead: tuple[int, ...] = ()) -> Stream:
        """The analyzer's state after a sync that no silo is in: the decoder moves on by an empty release."""
        return self.encoder.decode_step(state, np.zeros((*lead, self.width)))[0]

    def prefix_gain(self, visits: tuple[int, ...]) -> Floats:
        """The noise of each decoded prefix sum over all silos, per unit of `scales`; `visits` are those to one silo by
        each sync."""
        return np.asarray(np.sqrt(self.silos) * self.encoder.prefix_norms)

    # -- for the audit and the simulator ----------------------------------------------------------------------------

    @abstractmethod
    def adversaries(self) -> tuple[Adversary, ...]:
        """Everybody that the guarantee is against, and what each of them sees."""

    def pooled(self) -> Self:
        """The same protocol for one silo that holds every silo's users: equal in law at the analyzer, M times cheaper.

        The encoder is linear, so encoding the total is the total of the encodings. The sum of M independent centred
        Gaussians of variance s^2 is one of variance M s^2. (Each is rounded to the release grid, so the law of the sum
        differs by the rounding alone, of relative size 2^-release_bits / s.)
        """
        return replace(self, silos=1, scales=self.scales.times(np.sqrt(self.silos)))
