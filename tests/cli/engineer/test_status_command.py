"""`fedbandit status` says why a party refuses to go on, or what it waits for, in words and in JSON."""

import asyncio

import pytest
from typer.testing import CliRunner

from fedbandit.cli.main import app
from fedbandit.federation.status import status
from tests.federation.harness import federation
from tests.federation.small import small_plan


def table(path):
    """What a person reads, on one line."""
    said = CliRunner().invoke(app, ["status", str(path)]).output
    return " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize(
    "absent, name, words",
    [
        (["mixer"], "silo-00", "the others have not yet said how far they have seen this silo come"),
        (
            ["analyzer"],
            "mixer",
            "until others have said how far they have seen this party come: analyzer",
        ),
        (["silo-01", "silo-02"], "analyzer", "have said how far they have seen this party come: silo-01, silo-02"),
    ],
)
def test_a_party_that_waits_says_for_whom_and_no_longer_when_they_have_come(tmp_path, absent, name, words):
    async def main():
        async with federation(tmp_path, small_plan(), absent=absent) as running:
            path = running.homes[name].path
            await running.until(lambda: words in (status(path).get("problem") or ""))
            said = table(path)
            assert words in said
            assert said.index(" problem ") < said.index(" fingerprint "), "it comes first"
            for other in absent:
                await running.start(other)
            await running.until(lambda: status(path)["problem"] is None)
            assert "problem none" in table(path)

    asyncio.run(main())


def test_what_a_silo_found_out_is_there_when_it_does_not_run(tmp_path):
    async def main():
        async with federation(tmp_path, small_plan()) as running:
            await running.sync(0)
            silo = running.running["silo-00"]
            silo._sealer.halt("the analyzer has sent two models of sync 0")
            path = running.homes["silo-00"].path
            await running.until(lambda: "two models" in (status(path)["problem"] or ""))
            await running.stop("silo-00")
            assert "the analyzer has sent two models of sync 0" in table(path)

    asyncio.run(main())


def test_people_can_compare_which_models_their_silos_have(tmp_path):
    """Without a mixer nobody else does it for them."""

    async def main():
        async with federation(tmp_path, small_plan(trust="silo", rounds=10)) as running:
            paths = [running.homes[name].path for name in running.silos]
            assert {status(path)["models_fingerprint"] for path in paths} == {None}
            seen = []
            for sync in range(2):
                await running.sync(sync)
                same = lambda: len({status(path)["models_fingerprint"] for path in paths}) == 1  # noqa: E731
                await running.until(same)
                seen.append(status(paths[0])["models_fingerprint"])
            assert [text.split()[0] for text in seen] == ["1", "2"]

    asyncio.run(main())
