"""The same parts of a simulation, spread over a Ray cluster (extra `ray`).

A part is played by whichever worker is free; parts of a worker that is lost are played again elsewhere. What comes
out is the same as here, since a part carries its plans, runs and seed with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numba

from fedbandit.simulate.engine import Played, Progress
from fedbandit.simulate.runner import Executor, Part


def ray_executor(where: str) -> Executor:
    """For "ray" a cluster of this machine's cores, for "ray://host:port" the cluster at that address."""
    if where != "ray" and not where.startswith("ray://"):
        raise ValueError(f"on must be 'ray' or 'ray://host:port', got {where!r}")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # a cluster started here tells nobody about it
    try:
        import ray
    except ImportError:
        raise ImportError("on must find Ray installed: pip install 'fedbandit[ray]'") from None

    def play(parts: list[Part], progress: Progress) -> Iterator[tuple[Part, dict[str, Played]]]:
        address = None if where == "ray" else where
        with ray.init(address=address, include_dashboard=False, log_to_driver=False):
            remote = ray.remote(num_cpus=1, max_retries=-1)(_play_on_one_core)
            waiting = {remote.remote(part): part for part in parts}
            total = sum(part.weight for part in parts)
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                part = waiting.pop(done)
                progress(1 - sum(left.weight for left in waiting.values()) / total)
                yield part, ray.get(done)

    return play


def _play_on_one_core(part: Part) -> dict[str, Played]:
    numba.set_num_threads(1)
    return part.play()
