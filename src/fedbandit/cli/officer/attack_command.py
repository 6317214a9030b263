"""`fedbandit attack`: attacks as worked examples, each with the defence that stops it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from fedbandit import _validate
from fedbandit.audit import attacks
from fedbandit.cli import checks, options, output

__all__ = ["attack"]


def attack(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="The attack to run; without one, all are listed.")] = None,
    trials: options.Trials = None,
    seed: options.Seed = 0,
    json: options.Json = False,
    wide: options.Wide = False,
) -> None:
    """Attacks as worked examples: what each learns without its defence, and with it."""
    if name is None:
        checks.no_effect(context, ("trials", "seed"), "without the name of an attack")
        _list(json)
        return
    chosen = attacks.attack(name)
    _validate.count("seed", seed, least=0)
    runs = chosen.trials if trials is None else _validate.count("trials", trials, least=2)
    measured = chosen.run(runs, np.random.default_rng(seed))
    if json:
        output.print_json({"name": name, "title": chosen.title, "defence": chosen.defence, **measured._asdict()})
        return
    rows = [["without the defence", f"{measured.exposed:.4f}"], ["with it", f"{measured.defended:.4f}"]]
    rows.append(["what the defence allows", f"{measured.limit:.4f}"])
    output.print_table(f"{chosen.title} ({measured.trials:,} trials, seed {seed})", ["", measured.measure], rows)
    for label, text in _story(chosen).items():
        output.say(f"{label}: {text}.")


def _list(json: bool) -> None:
    known = {name: attacks.attack(name) for name in attacks.names()}
    if json:
        output.print_json({"attacks": [{"name": name, "title": a.title, **_story(a)} for name, a in known.items()]})
        return
    rows = [[name, a.title, a.defence] for name, a in known.items()]
    output.print_table("fedbandit attack NAME runs one of them", ["name", "what", "defence"], rows)


def _story(chosen: attacks.Attack) -> dict[str, str]:
    return {
        "Adversary": chosen.adversary,
        "Learns": chosen.learns,
        "Defence": chosen.defence,
        "Remains": chosen.remains,
    }
