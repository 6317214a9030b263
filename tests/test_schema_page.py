"""docs/schema.md is run as it stands: its Python, its file, its bodies, and what it says about Personalizer."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from fedbandit.federation.http.app import create_app
from fedbandit.federation.http.service import Service
from fedbandit.federation.silo.serving import Silo
from fedbandit.problem import Schema
from tests.federation.http.client import TOKEN, Client

PAGE = (Path(__file__).parents[1] / "docs" / "schema.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for number, code in enumerate(blocks("python")):
        exec(compile(code, f"schema.md, block {number}", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "('action=low', 'action=medium', 'action=high', 'age x action=low')" in printed
    assert "'weight': {'missing': 1}" in printed
    (file,) = blocks("toml")
    assert Schema.from_dict(tomllib.loads(file)) == namespace["schema"]
    silo = namespace["silo"]
    assert isinstance(silo, Silo)
    (body,) = blocks("json")
    service = Service(silo)
    with Client(create_app(service, TOKEN), f"Bearer {TOKEN}") as http:
        answer = http.post("/v1/decisions", json=json.loads(body)).json()
    service.close()
    silo.close()
    assert set(answer) == {"id", "action", "name", "propensity", "model"}
    assert answer["name"] in ("low", "medium")


def test_the_projection_of_the_page_is_one() -> None:
    (text,) = re.findall(r"`(projection = \{.*?\})`", PAGE)
    (file,) = blocks("toml")
    assert Schema.from_dict(tomllib.loads(f"{text}\n{file}")).dim == 20
