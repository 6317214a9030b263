"""The noise of a trusted server without one: each silo adds a share of the noise and splits its release in two.

A silo's integer release is cut into two uniformly random shares modulo 2^64, one for the mixer S and one sealed for
the analyzer A. S adds its shares and passes the sealed ones on; A adds those to S's total. Either alone sees uniform
words; together they learn the noisy sum over silos and, as long as they do not collude, nothing else. A silo that
drops out is left out. If S and A do collude, each silo is still left with its own share of the noise.

A silo that missed rounds must not fold them into a later release: there the noise is the others', round by round, and
a larger column norm would not be covered by it. It is simply left out; `batch_weights` says what that does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from fedbandit.privacy.noise import NoiseSource, Words
from fedbandit.protocol.base import SILOS, Message, Protocol
from fedbandit.protocol.calibration import gaussian_noise
from fedbandit.protocol.encoder import Encoder, Floats, Integers, Stream
from fedbandit.protocol.guarantee import COMMON_ASSUMPTIONS, Built, Guarantee, Request, nothing


@dataclass(frozen=True)
class SecureSumProtocol(Protocol):
    """R adds this silo's share of the noise and splits; S adds its shares; A adds its own to S's total.

    Formal guarantee: with sigma^2 divided over the smallest number h of honest silos in a round, A's view is that of
    the noisy sum, (column_norm * shift / sigma)-GDP for each user of any silo; S's view is uniform words; c colluding
    silos know their own noise, which is why h leaves them out. If S and A collude: mu is sqrt(h) times as large.
    """

    trust = "secure-sum"

    @property
    def message_arrays(self) -> int:
        return 2

    def release(self, state: Stream, batch: Integers, noise: NoiseSource) -> tuple[Stream, Message]:
        state, (noisy,) = super().release(state, batch, noise)
        return state, split(noisy, noise)

    def mix(self, messages: Message, noise: NoiseSource) -> Message:
        """S: one total of its own shares; the analyzer's shares pass through, still one a silo."""
        for_mixer, for_analyzer = messages
        return for_mixer.sum(axis=SILOS, dtype=np.uint64, keepdims=True), for_analyzer

    def total(self, mixed: Message) -> Integers:
        for_mixer, for_analyzer = (array.sum(axis=SILOS, dtype=np.uint64) for array in mixed)
        return np.asarray(for_mixer + for_analyzer).view(np.int64)


def split(release: Integers, noise: NoiseSource) -> tuple[Words, Words]:
    """Two shares, each uniform on its own, whose sum modulo 2^64 is the release."""
    mask = noise.words(release.shape)
    return mask, release.view(np.uint64) - mask


def batch_weights(encoder: Encoder, missed: Collection[int], k: int) -> Floats:
    """Weight of each batch l <= k of a silo that was absent at steps `missed`, in the server's prefix sum k.

    1 - sum over missed j of B[k,j] C[j,l]: the same for bias and covariance, so the regression stays unbiased with a
    little less data. In [0, 1] because B and C have no negative entries.
    """
    weights = np.ones(k + 1)
    decoder = encoder.decoder_row(k)
    for j in missed:
        if j <= k:
            weights[: j + 1] -= decoder[j] * encoder.row(j)
    return weights


def build(request: Request) -> Built:
    """Divide the noise of the sum over the smallest number of honest silos a round can have."""
    if request.calibration != "exact":
        raise ValueError("calibration must be 'exact' for trust 'secure-sum': the paper has no constants for it")
    honest = (request.cohort or request.silos) - request.colluding
    if honest < 1:
        raise ValueError(
            f"cohort must be larger than colluding = {request.colluding}, got {request.cohort or request.silos}"
        )
    noise = gaussian_noise(request, joint_silos=True)
    scales = tuple((np.array(noise.scales) / np.sqrt(honest)).tolist())
    protocol = SecureSumProtocol(request.encoder, scales, request.bits, request.silos)
    if noise.problem:
        return Built(protocol, nothing(noise.problem))
    privacy = request.asked
    alone = request.exact_epsilon(noise.sigma / np.sqrt(honest), joint_silos=False)
    peer = request.exact_epsilon(noise.sigma * np.sqrt(1 - 1 / honest), joint_silos=True) if honest > 1 else np.inf
    together = f" and {request.colluding} colluding silos" if request.colluding else ""
    guarantee = Guarantee(
        f"The noisy sums are ({privacy.epsilon:g}, {privacy.delta:g})-differentially private for each user of any silo "
        f"({privacy.adjacency}), against the analyzer{together}; the mixer alone sees uniform words. If mixer and "
        f"analyzer collude, each silo's own noise still gives ({alone:.4g}, {privacy.delta:g}).",
        privacy.epsilon,
        privacy.delta,
        privacy.adjacency,
        f"the analyzer{together}, or the mixer",
        (
            *noise.steps,
            f"At least {honest} honest silos take part in a round; each adds noise of variance 1/{honest} of that, "
            f"and independent Gaussians add up.",
            "A share is uniform modulo 2^64 whatever the release, so the mixer's view tells nothing, and the "
            "analyzer's view is a function of the noisy sum and of uniform words.",
            f"One more silo that subtracts its own noise from the sum is faced with {honest - 1} shares of it, an "
            f"exact epsilon of {peer:.4g}; plan with `colluding` to hold the budget against silos too.",
            f"Mixer and analyzer together see each silo's release with its own noise alone: mu is sqrt {honest} times "
            f"as large, an exact epsilon of {alone:.4g}.",
        ),
        (
            *COMMON_ASSUMPTIONS,
            "mixer and analyzer do not collude (for the first statement)",
            f"a round with fewer than {request.cohort or request.silos} silos is not opened",
        ),
    )
    return Built(protocol, guarantee)
