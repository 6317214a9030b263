"""Names for the types of arrays. The shape of an array is written where the array is declared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Flags", "Floats", "Indices", "Integers", "Numbers", "Singles", "Words"]

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Numbers = NDArray[Any]
