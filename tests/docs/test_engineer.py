"""docs/tutorials/engineer.md is run as it stands, with days as short and ports as free as this machine has them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedbandit.demo.processes import seconds_to_start
from fedbandit.federation.wire.broker import free_port
from tests.docs.pages import DOCS, run_page

PAGE = DOCS / "tutorials" / "engineer.md"
PARTIES = 6  # processes that start at the same time, the broker and its streams among them


@pytest.mark.torture
def test_three_organisations_from_nothing_to_a_model_and_through_a_bad_day(tmp_path: Path) -> None:
    slow = seconds_to_start()
    day = max(1.5, 2.5 * slow)
    others = {port: str(free_port()) for port in ("4222", "8080", "8081")}
    others |= {"+ 300 ": f"+ {5 + 2 * PARTIES * slow:.0f} ", "period = 10.0": f"period = {day}"}
    script = run_page(PAGE, tmp_path, others)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["bash", "-e"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(script + "\nkill $(jobs -p)\nwait\nexit 0\n", timeout=600)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)  # whatever is left of what was started here
    logs = {file.name: file.read_text()[-1500:] for file in tmp_path.glob("*.log")}
    assert shell.returncode == 0, (printed[-3000:], logs)
    assert len(re.findall(r"^model \d+ after", printed, flags=re.MULTILINE)) == 5
    assert "always:low" in printed
    assert "must never run again" in printed, "a restore says what it means"
    assert (tmp_path / "a" / "hospital-a" / "silo.db").exists()
