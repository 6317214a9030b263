"""The paper's algorithms as plans, and its figures."""

from fedbandit.paper.presets import (
    dubey,
    fed_lin_ucb,
    lazy,
    ldp,
    ldp_alt,
    ldp_eager,
    private_adaptive,
    sdp_amplified,
    sdp_vector_sum,
    super_agent,
)

__all__ = [
    "dubey",
    "fed_lin_ucb",
    "lazy",
    "ldp",
    "ldp_alt",
    "ldp_eager",
    "private_adaptive",
    "sdp_amplified",
    "sdp_vector_sum",
    "super_agent",
]
