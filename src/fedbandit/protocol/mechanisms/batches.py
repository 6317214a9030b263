"""Release every batch sum once, as it is: C = I, B = A. Each release has little noise; prefix k adds up k of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedbandit._arrays import Floats, Integers
from fedbandit.protocol.encoder import Encoder, Stream
from fedbandit.protocol.endless import EndlessEncoder

__all__ = ["Batches", "EndlessBatches", "encoder", "endless", "forgetting"]


@dataclass(frozen=True)
class Batches(Encoder):
    """C = I: release k is batch k."""

    def row(self, k: int) -> Floats:
        return np.asarray(np.eye(1, k + 1, k)[0])

    def decoder_row(self, k: int) -> Floats:
        return self.target_row(k)

    @cached_property
    def column_norm(self) -> float:
        return 1.0

    @cached_property
    def has_negative(self) -> bool:
        return False

    @cached_property
    def prefix_norms(self) -> Floats:
        return np.asarray(np.sqrt(np.cumsum(self.forget ** (2 * np.arange(self.size)))))

    @cached_property
    def touches(self) -> int:
        return 1

    def step(self, state: Stream, sums: Integers) -> tuple[Stream, Integers]:
        self._check_horizon(state)
        return Stream(state.done + 1, ()), sums

    def init_decoder(self, shape: tuple[int, ...]) -> Stream:
        return Stream(0, (np.zeros(shape),))

    def decode_step(self, state: Stream, released: Integers | Floats) -> tuple[Stream, Floats]:
        self._check_horizon(state)
        prefix = self.forget * state.memory[0] + released.astype(np.float64)
        return Stream(state.done + 1, (prefix,)), prefix


@dataclass(frozen=True)
class EndlessBatches(EndlessEncoder):
    """C = I, without a last row."""

    @property
    def name(self) -> str:
        return "batches"


def encoder(size: int) -> Encoder:
    """C = I over `size` releases."""
    return Batches(size)


def forgetting(size: int, forget: float) -> Encoder:
    """C = I, decoded to weighted sums."""
    return Batches(size, forget=forget)


def endless(size: int, forget: float) -> EndlessEncoder:
    """C = I without a last row: a band of one."""
    return EndlessBatches(size, (1.0,), forget=forget)
