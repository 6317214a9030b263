"""No privacy (FedLinUCB): R and S are the identity, A adds up everything it was ever sent."""

from __future__ import annotations

from collections.abc import Sequence

from .common import Array


class NonPrivate:
    """Exact sums over all silos and all batches so far."""

    def __init__(self) -> None:
        self.total: Array | float = 0.0

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Array:
        return gamma

    def shuffle(self, messages: Sequence[Array]) -> Sequence[Array]:
        return messages

    def analyze(self, messages: Sequence[Array]) -> Array:
        for message in messages:
            self.total = self.total + message
        return self.total
