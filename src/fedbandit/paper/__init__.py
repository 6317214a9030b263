"""The paper: its algorithms as plans, its figures and claims reproduced, and its pseudo-code line by line."""

from fedbandit.presets import (
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
