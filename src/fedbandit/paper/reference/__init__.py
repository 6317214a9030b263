"""The algorithms of the paper, transcribed line by line from its pseudo-code: slow, obvious, in numpy alone.

The tests check the engine and the protocols against these files, and `fedbandit bench` times the engine against them,
so they share nothing with the rest of the package. Each algorithm is written out in full with its line numbers; where
two of them repeat each other, so do they in the paper. Where the pseudo-code leaves something open or is wrong as
printed, the docstring says what the transcription does instead.
"""

from fedbandit.paper.reference.algorithm1 import private_fedlinucb
from fedbandit.paper.reference.algorithm2 import Alt, PaperTree
from fedbandit.paper.reference.common import Run, StreamProtocol, play, sync_times
from fedbandit.paper.reference.dubey_pentland import dubey
from fedbandit.paper.reference.lazy_variant import private_fedlinucb_lazy
from fedbandit.paper.reference.no_protocol import NonPrivate
from fedbandit.paper.reference.p_vec import Parameters, paper_parameters
from fedbandit.paper.reference.p_vec_tree import VectorSum

__all__ = [
    "Alt",
    "NonPrivate",
    "PaperTree",
    "Parameters",
    "Run",
    "StreamProtocol",
    "VectorSum",
    "dubey",
    "paper_parameters",
    "play",
    "private_fedlinucb",
    "private_fedlinucb_lazy",
    "sync_times",
]
