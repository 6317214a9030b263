"""`fedbandit web` and `fedbandit status --web` as people start them: in a process, ended by Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fedbandit.federation.one_process import Federation
from tests.docs.pages import DOCS, blocks

# The commands of docs/seeing.md, which serve until Ctrl-C, without `fedbandit` and remarks.
WEB, PAGE = (
    shlex.split(block.text, comments=True)[1:]
    for block in blocks(DOCS / "seeing.md")
    if "test_web_commands" in block.mark
)

# Whoever runs the tests in the background has Ctrl-C ignored, and so would all that they start.
HEARS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
PROGRAM = [sys.executable, "-c", f"{HEARS}; from fedbandit.cli.main import main; main()"]


@contextmanager
def started(*arguments: str) -> Iterator[str]:
    """What a command says first; it is interrupted at the end, and ends well."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if "token" not in said and "status" in arguments:
            said += process.stdout.readline()
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_the_planner_is_served_to_this_machine() -> None:
    with started(*WEB, "--port", "0") as said:  # any that is free: others may run this, too
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", said)
        with urllib.request.urlopen(url, timeout=30) as page:
            assert b"planner.js" in page.read()
        with urllib.request.urlopen(f"{url}api/form", timeout=60) as form:
            trusts = [one["name"] for one in json.loads(form.read())["trusts"]]
    assert trusts == ["local", "silo", "secure-sum", "central"]


def test_a_directory_is_served_with_a_token_of_its_own(federation: Federation) -> None:
    home = str(federation.folder / "analyzer")
    with started(*(home if word == "hospital-a" else word for word in PAGE)) as said:
        (url,) = re.findall(r"http://127\.0\.0\.1:\d+/", said)
        (token,) = re.findall(r"token: (\S+)", said)
        assert token not in url
        request = urllib.request.Request(f"{url}v1/board", headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert json.loads(answer.read())["role"] == "analyzer"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}v1/board", timeout=30)
