"""The algorithms of the paper, transcribed line by line from its pseudo-code: slow, obvious, numpy alone.

Everything else is checked against these files, so they share nothing with the package they check. Each
algorithm is written out in full beside its line numbers; where two repeat each other, the paper does. Where
the pseudo-code leaves something open or is wrong as printed, the docstring says what is done instead.
"""

from .algorithm1 import private_fedlinucb
from .common import Run, StreamProtocol, play, sync_times
from .dubey import dubey
from .lazy import private_fedlinucb_lazy
from .none import NonPrivate
from .tree import Alt, Tree
from .vector_sum import Parameters, paper_parameters
from .vector_sum_tree import VectorSum

__all__ = [
    "Alt",
    "NonPrivate",
    "Parameters",
    "Run",
    "StreamProtocol",
    "Tree",
    "VectorSum",
    "dubey",
    "paper_parameters",
    "play",
    "private_fedlinucb",
    "private_fedlinucb_lazy",
    "sync_times",
]
