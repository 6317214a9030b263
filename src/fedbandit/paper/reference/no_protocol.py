"""The protocol without privacy (FedLinUCB): R and S are the identity, A adds up everything that it has received."""

from __future__ import annotations

from collections.abc import Sequence

from fedbandit.paper.reference.common import Array, add

__all__ = ["NonPrivate"]


class NonPrivate:
    """Exact sums over all silos and all batches so far."""

    def __init__(self) -> None:
        self.so_far: tuple[Array, ...] = ()  # the sum of all earlier batches, once there is one

    def randomize(self, i: int, gamma: Array, points: Sequence[Array]) -> Array:
        return gamma

    def shuffle(self, messages: Sequence[Array]) -> Sequence[Array]:
        return messages

    def analyze(self, messages: Sequence[Array]) -> Array:
        total = add(*self.so_far, *messages)
        self.so_far = (total,)
        return total
