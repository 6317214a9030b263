# %% [markdown]
# # Twelve hospitals learn which dose suits whom
#
# None of them shows the others a patient. Only the patients are made up, and a day lasts a second or two. The rest is
# real: a broker, a mixer, an analyzer and twelve silos run as processes on this machine, and every decision and every
# reward goes over HTTP.
#
#     python examples/clinic/clinic.py
#
# 1. A schema (`schema.toml`, beside this file) says how a patient becomes a row. A plan says what is promised.
# 2. In the apprentice week the doctors choose as they always did. The silo records their choices and learns from them.
# 3. After that week the model chooses, and the hospitals synchronise every day.
# 4. Each hospital judges from its own log how the model compares with its old practice.

# %%
from __future__ import annotations

import asyncio
import json
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import fedbandit as fb
from fedbandit.bandit.policies import Policy
from fedbandit.demo.processes import Processes, seconds_to_start, url
from fedbandit.evaluation.decisions import from_frame
from fedbandit.evaluation.evaluating import Evaluation, evaluate
from fedbandit.evaluation.targets import logged_model, uniform
from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.store.decision_log import DecisionLog
from fedbandit.federation.timing import Timing
from fedbandit.plan import Plan

HERE = Path(__file__).parent if "__file__" in globals() else Path.cwd()  # a notebook runs in its own folder
HOSPITALS, WEEK, DAYS, PATIENTS = 12, 7, 21, 15
DOSES = ("low", "medium", "high")
PRACTICE = np.array([0.15, 0.7, 0.15])  # how often doctors give each dose, whoever comes
ATTEMPTS = 5
AT_ONCE = 4  # patients of one hospital at the same time


# %% [markdown]
# ## Patients
#
# A patient has a record, which the hospital knows, and a chance of being helped by each dose, which nobody knows.


# %%
@dataclass(frozen=True)
class Patient:
    """What the hospital knows of a patient, how likely each dose is to help, and the luck of the draw."""

    record: dict[str, Any]
    chances: np.ndarray  # (doses,)
    luck: float

    def helped(self, dose: str) -> float:
        """Whether the dose helps: 1 or 0."""
        return float(self.luck < self.chances[DOSES.index(dose)])


def patient(rng: np.random.Generator) -> Patient:
    """Old people and impaired kidneys need less, young and healthy ones more; the medium dose is right for few."""
    age, impaired = rng.uniform(18, 100), rng.random() < 0.4
    need = (59 - age) / 82 + (0.35 if not impaired else -0.35)  # negative: less
    chances = np.clip([0.45 - 0.6 * need, 0.5, 0.45 + 0.6 * need], 0.05, 0.95)
    record = {"age": round(float(age), 1), "kidneys": "impaired" if impaired else "normal"}
    return Patient(record, chances, float(rng.random()))


# %% [markdown]
# ## The plan
#
# One sync per day for three weeks. Every patient is promised (1, 1e-5). During the apprentice week doctors may choose.


# %%
def clinic_plan(day: float) -> Plan:
    """The plan, for days that last `day` seconds."""
    schema = fb.Schema.from_dict(tomllib.loads((HERE / "schema.toml").read_text()))
    return fb.Plan(
        silos=HOSPITALS,
        rounds=DAYS,
        people=PATIENTS,
        schema=schema,
        privacy=fb.Privacy(epsilon=1.0, delta=1e-5),
        schedule=fb.clock(day),
        confidence="practical",
        centre=0.5,  # the columns of named actions add up to a constant, so rewards may be centred: half the noise
        ratio=4.0,
        policy=Policy("inverse-gap", scale=10.0, floor=0.1),
        apprentice=True,
    )


# %% [markdown]
# ## The hospitals
#
# Each hospital has an application that asks its silo for a decision and reports what came of it.


# %%
@dataclass
class Hospital:
    """One hospital's application: asks its silo over HTTP, and reports what came of it."""

    home: Home
    patients: list[list[Patient]]  # by day
    rng: np.random.Generator
    start: float
    day: float

    async def run(self) -> list[float]:
        """All days, one after the other; the expected outcome of every decision."""
        headers = {"Authorization": f"Bearer {self.home.token()}"}
        async with httpx.AsyncClient(base_url=url(self.home), headers=headers, timeout=30) as http:
            expected = []
            for day, arrivals in enumerate(self.patients):
                await asyncio.sleep(max(0.0, self.start + (day + 0.1) * self.day - time.time()))
                gate = asyncio.Semaphore(AT_ONCE)
                visits = (
                    self._treat(http, one, f"{day}/{number}", day < WEEK, gate) for number, one in enumerate(arrivals)
                )
                expected += await asyncio.gather(*visits)
        return expected

    async def _treat(
        self, http: httpx.AsyncClient, one: Patient, key: str, apprentice: bool, gate: asyncio.Semaphore
    ) -> float:
        async with gate:
            asked = {"context": one.record, "user": key, **(self._own_choice() if apprentice else {})}
            decision = (await posted(http, "/v1/decisions", asked)).raise_for_status().json()
            reward = {"reward": one.helped(decision["name"])}
            answer = await posted(http, f"/v1/decisions/{decision['id']}/reward", reward)
            if answer.status_code != httpx.codes.GONE:  # too late to count: the term is over
                answer.raise_for_status()
            return float(one.chances[decision["action"]])

    def _own_choice(self) -> dict[str, Any]:
        """Doctors choose by habit, and know how often they choose what."""
        dose = int(self.rng.choice(len(DOSES), p=PRACTICE))
        return {"chosen": DOSES[dose], "propensity": float(PRACTICE[dose])}


async def posted(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> httpx.Response:
    """Try again if the connection breaks: a reward counts once, however often it is sent."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await http.post(path, json=body)
        except httpx.TransportError:
            await asyncio.sleep(0.5)
    return await http.post(path, json=body)


def live(folder: Path, seed: int) -> tuple[Plan, list[Home], np.ndarray]:
    """Three weeks of all hospitals; the expected outcome of every decision, (hospitals, days, patients)."""
    to_start = seconds_to_start()  # of a process: on a busy machine days are longer
    day = max(1.5, 2.5 * to_start)
    plan, names = clinic_plan(day), [f"hospital-{number:02}" for number in range(1, HOSPITALS + 1)]
    start = time.time() + 2 * (HOSPITALS + 3) * to_start  # when all are up
    homes = founding.local(folder, plan, names, Timing(deadline=60.0, settle_last=5.0, start=start))
    silos = [home for home in homes if home.settings.role == "silo"]
    for home in silos:
        keep_a_log(home)
    streams = [np.random.default_rng((seed, number)) for number in range(HOSPITALS)]
    come = [[[patient(rng) for _ in range(PATIENTS)] for _ in range(DAYS)] for rng in streams]
    with Processes(folder, [Home.load(home.path) for home in homes], until=start):
        hospitals = [Hospital(*one, start, day) for one in zip(silos, come, streams, strict=True)]
        expected = asyncio.run(together(hospitals))
    return plan, silos, np.array(expected).reshape(HOSPITALS, DAYS, PATIENTS)


async def together(hospitals: list[Hospital]) -> list[list[float]]:
    return list(await asyncio.gather(*(one.run() for one in hospitals)))


def keep_a_log(home: Home) -> None:
    """A hospital that wants to judge decisions later keeps a log of them, in a file of its own that nothing sends."""
    settings = home.path / "party.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "log_days": 90}))


# %% [markdown]
# ## The verdict
#
# Each hospital reads its own log. Only here, where patients are made up, does anybody also know the truth.


# %%
def verdict(home: Home) -> Evaluation:
    """What one hospital's own log says: practice, the newest model, and tossing a coin."""
    log = DecisionLog(home.decision_log)
    try:
        return evaluate(from_frame(log.frame()), {"model": logged_model(log.models()), "uniform": uniform})
    finally:
        log.close()


def report(plan: Plan, verdicts: dict[str, Evaluation], expected: np.ndarray) -> dict[str, Any]:
    """The whole story in numbers."""
    weeks = expected.reshape(HOSPITALS, DAYS // WEEK, -1).mean(axis=(0, 2))
    rng = np.random.default_rng(0)
    chances = np.array([patient(rng).chances for _ in range(20_000)])
    return {
        "dim": plan.dim,
        "guarantee": plan.guarantee.statement,
        "helped by week": [round(float(one), 3) for one in weeks],
        "helped by old practice": round(float((chances @ PRACTICE).mean()), 3),
        "helped by knowing everything": round(float(chances.max(axis=1).mean()), 3),
        "verdicts": {
            name: {policy: found[policy].worth["dr"]._asdict() for policy in ("model", "uniform")}
            for name, found in verdicts.items()
        },
    }


def show(found: dict[str, Any]) -> None:
    print(f"{HOSPITALS} hospitals, {PATIENTS} patients per day each, rows of {found['dim']} numbers")
    print(found["guarantee"])
    print("\npatients helped, in truth:")
    print(f"  old practice {found['helped by old practice']:.1%}", end="; ")
    print("; ".join(f"week {number} {share:.1%}" for number, share in enumerate(found["helped by week"], 1)), end="; ")
    print(f"the best possible {found['helped by knowing everything']:.1%}")
    print("\nwhat each hospital reads from its own log (doubly robust, 95 %):")
    for name, judged in found["verdicts"].items():
        model, coin = judged["model"], judged["uniform"]
        interval = f"{model['value']:.1%} ({model['low']:.1%} to {model['high']:.1%})"
        print(f"  {name}: the newest model would help {interval}, tossing a coin {coin['value']:.1%}")


# %% [markdown]
# ## Three weeks
#
# The run gets a thread of its own because a notebook already has an event loop in this one.


# %%
with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as aside:
    plan, homes, expected = aside.submit(live, Path(folder), 0).result()
    verdicts = {home.settings.name: verdict(home) for home in homes}

# %%
found = report(plan, verdicts, expected)
show(found)
