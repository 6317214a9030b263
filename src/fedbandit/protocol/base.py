"""The protocol triple P = (R, S, A) of the paper, and what all trust models share.

The way of a batch: `collect` (users to a batch), `release` (R: encode and add noise), `mix` (S), `decode` (A: prefix
sums). One implementation serves the simulator, the audit and the live federation; it is vectorised over any leading
axes, and the axis of the silos is the one before the last. Messages are tuples of integer arrays, states are values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedbandit.privacy.noise import NoiseSource
from fedbandit.protocol.encoder import Encoder, Floats, Integers, Stream

Message = tuple[NDArray[Any], ...]
SILOS = -2  # the axis of the silos in messages of a whole federation


@dataclass(frozen=True)
class Protocol:
    """R, S and A over one encoder, with Gaussian noise at the silo (or none: `scales` zero) and S the identity.

    `scales` is the standard deviation of one silo's noise in each packed number, in natural units; releases are
    integers in units of 2^-(bits + encoder.fraction_bits).
    """

    encoder: Encoder
    scales: tuple[float, ...]  # (width,)
    bits: int
    silos: int

    trust: ClassVar[str]
    needs_points: ClassVar[bool] = False  # True: `collect` must see each user, sums do not do

    @property
    def width(self) -> int:
        """Numbers in one packed statistic."""
        return len(self.scales)

    @property
    def release_bits(self) -> int:
        """A release is an integer multiple of 2^-release_bits."""
        return self.bits + self.encoder.fraction_bits

    @property
    def message_arrays(self) -> int:
        """How many arrays of `width` numbers one silo sends a round."""
        return 1

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

    def draw(self, noise: NoiseSource, lead: tuple[int, ...]) -> Integers:
        """One release's noise, in release units."""
        scales = np.array(self.scales) * 2.0**self.release_bits
        return noise.gaussian(scales, lead) if scales.any() else np.zeros((*lead, self.width), dtype=np.int64)

    # -- S, the third party -----------------------------------------------------------------------------------------

    def mix(self, messages: Message, noise: NoiseSource) -> Message:
        """S: the identity."""
        return messages

    # -- A, at the server -------------------------------------------------------------------------------------------

    def init_analyzer(self, lead: tuple[int, ...] = ()) -> Stream:
        """The server's state before the first round."""
        return self.encoder.init_decoder((*lead, self.width))

    def total(self, mixed: Message) -> NDArray[Any]:
        """The sum over silos of what S passed on."""
        return np.asarray(mixed[0].sum(axis=SILOS))

    def decode(self, state: Stream, mixed: Message) -> tuple[Stream, Floats]:
        """A: add the silos up and decode the prefix sum, in natural units (..., width)."""
        state, prefix = self.encoder.decode_step(state, self.total(mixed))
        return state, prefix * 2.0**-self.bits

    def prefix_gain(self, times: tuple[int, ...]) -> Floats:
        """Noise of each decoded prefix sum over all silos, per unit of `scales`; `times` are rounds of a silo."""
        return np.asarray(np.sqrt(self.silos) * self.encoder.prefix_norms)

    # -- the exact shortcut -----------------------------------------------------------------------------------------

    def pooled(self) -> Self:
        """The same protocol for one silo that holds every silo's users: equal in law at the analyzer, M times cheaper.

        The encoder is linear, so encoding the total is the total of the encodings; and the sum of M independent
        centred Gaussians of variance s^2 is one of variance M s^2 (each is rounded to the release grid, so the law of
        the sum differs by the rounding alone, of relative size 2^-release_bits / s).
        """
        return replace(self, silos=1, scales=tuple(np.sqrt(self.silos) * np.array(self.scales)))
