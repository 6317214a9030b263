"""Spreads the jobs of a simulation over a Ray cluster (extra `ray`).

Any free worker plays a job, and the jobs of a lost worker are played again elsewhere. Results are the same as on this
machine, because a job carries its plans, runs and seed with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numba

from fedbandit._validate import ArgumentError
from fedbandit.simulator.engine import Played, Progress
from fedbandit.simulator.runner import Executor, Job

__all__ = ["ray_executor"]


def ray_executor(where: str) -> Executor:
    """Plays jobs on a cluster of this machine's cores ("ray"), or on the cluster at an address ("ray://host:port")."""
    if where != "ray" and not where.startswith("ray://"):
        raise ArgumentError("on", f"must be 'ray' or 'ray://host:port', got {where!r}")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # a cluster started here sends no usage reports
    try:
        import ray
    except ImportError:
        raise ImportError("simulating on Ray needs the extra 'ray': pip install 'fedbandit[ray]'") from None

    def play(jobs: list[Job], progress: Progress) -> Iterator[tuple[Job, dict[str, Played]]]:
        address = None if where == "ray" else where
        with ray.init(address=address, include_dashboard=False, log_to_driver=False):
            remote = ray.remote(num_cpus=1, max_retries=-1)(_play_on_one_core)
            waiting = {remote.remote(job): job for job in jobs}
            total = sum(job.weight for job in jobs)
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                job = waiting.pop(done)
                progress(1 - sum(left.weight for left in waiting.values()) / total)
                yield job, ray.get(done)

    return play


def _play_on_one_core(job: Job) -> dict[str, Played]:
    numba.set_num_threads(1)
    return job.play()
