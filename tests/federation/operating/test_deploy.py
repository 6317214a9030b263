"""What is in deploy/ starts: units and image commands under the restrictions they set; manifests fit their schema."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]

from fedbandit.federation.setup import founding
from fedbandit.federation.setup.home import Home
from fedbandit.federation.timing import Timing
from fedbandit.federation.wire import broker
from fedbandit.schedule import clock
from tests.federation.operating.running import START, changed, get, until
from tests.federation.small import small_plan

DEPLOY = Path(__file__).parents[3] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
NOBODY = 65_534
SOURCE = DEPLOY.parent / "src"


def may_isolate():
    """Whether this process may make a mount namespace and become somebody else."""
    if os.geteuid() or not (shutil.which("unshare") and shutil.which("setpriv")):
        return False
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


isolated = pytest.mark.skipif(not may_isolate(), reason="needs root and mount namespaces (unshare, setpriv)")


def restricted(command, writable, *, hidden=True):
    """The command as nobody, with a root that cannot be written, a /tmp of its own, no home and no privileges: what the
    units (ProtectSystem, ProtectHome, PrivateTmp, NoNewPrivileges) and the container (read_only, cap_drop) set."""
    kept = sorted({str(Path(sys.base_prefix).resolve()), str(Path(sys.prefix).resolve()), str(SOURCE), *writable})
    lines = ["set -e", "mount --make-rprivate /", "mkdir -p /run/fedbandit-kept"]
    lines += ["mount -t tmpfs -o mode=755 tmpfs /run/fedbandit-kept"]
    for number, place in enumerate(kept):  # what is needed, before what is around it is hidden
        lines += [
            f"mkdir /run/fedbandit-kept/{number}",
            f"mount --bind {shlex.quote(place)} /run/fedbandit-kept/{number}",
        ]
    lines += ["mount -t tmpfs -o mode=755 tmpfs /root", "mount -t tmpfs -o mode=755 tmpfs /home"] if hidden else []
    lines += ["mount -t tmpfs -o mode=1777 tmpfs /tmp"]
    for number, place in enumerate(kept):
        quoted = shlex.quote(place)
        lines += [f"mkdir -p {quoted}", f"mount --bind /run/fedbandit-kept/{number} {quoted}"]
    lines += ["mount -o remount,bind,ro /"]
    for place in kept:
        if place not in writable:
            lines += [f"mount -o remount,bind,ro {shlex.quote(place)}"]
    drop = f"--reuid={NOBODY} --regid={NOBODY} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    lines += ["cd /", f"exec setpriv {drop} env -i PATH=/usr/bin:/bin PYTHONPATH={SOURCE} {shlex.join(command)}"]
    return ["unshare", "-m", "sh", "-c", "\n".join(lines)]


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """A federation whose directories belong to nobody, and its broker's configuration as it is shipped."""
    path = tmp_path_factory.mktemp("deployed")
    plan = small_plan(silos=2, rounds=1000, schedule=clock(3600.0), visits="private")
    homes = founding.local(path, plan, ["hospital-a", "hospital-b"], Timing(start=time.time()))
    for home in homes:
        if home.settings.role != "silo":
            home.make_token()
            changed(home, health_port=broker.free_port())
    for folder, _, files in os.walk(path):
        for name in (folder, *(os.path.join(folder, file) for file in files)):
            os.chown(name, NOBODY, NOBODY)
    return path, {home.settings.name: Home.load(home.path) for home in homes}


def started(command, writable, log):
    with log.open("ab") as file:
        return subprocess.Popen(restricted(command, writable), stdout=file, stderr=file)


def unit_command(unit):
    text = unit.read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, flags=re.MULTILINE)
    return shlex.split(command)


def here(word, home):
    """A word of a shipped command, on this machine."""
    places = {
        "/opt/fedbandit/bin/fedbandit": [str(Path(sys.prefix) / "bin" / "fedbandit")],
        "/opt/fedbandit/bin/nats-server": [str(broker.server_binary())],
        "fedbandit": [str(Path(sys.prefix) / "bin" / "fedbandit")],
        "/var/lib/fedbandit/%i": [str(home)],
        "/var/lib/fedbandit/broker/nats.conf": [str(home / "nats.conf")],
        "/party": [str(home)],
    }
    return places.get(word, [word])


def image_commands():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return {name: service["command"] for name, service in services.items() if name != "broker"}


@isolated
@pytest.mark.torture
def test_every_unit_and_image_command_starts_under_its_restrictions(federation):
    """The container died on import, because compiled code had no place; the broker's unit over relative paths."""
    path, homes = federation
    log = path / "restricted.log"
    (unit,) = [one for one in UNITS if "broker" in one.name]
    command = [part for word in unit_command(unit) for part in here(word, path)]
    running = [started(command, {str(path)}, log)]
    try:
        settings = json.loads((path / "nats.conf").read_text())
        until(lambda: broker.listens(settings["host"], settings["port"]), START)
        asyncio.run(founding.provision(path))
        for unit in UNITS:
            role = next((home for home in homes if homes[home].settings.role in unit.name), None)
            if role is None:
                continue
            shipped = image_commands()[homes[role].settings.role]
            for given in (unit_command(unit), ["fedbandit", *shipped]):
                words = [part for word in given for part in here(word, homes[role].path)]
                process = started(words, {str(homes[role].path)}, log)
                running.append(process)
                until(lambda role=role: get(homes[role], "/healthz").status_code == 200, START)
                check = [part for word in health_check() for part in here(word, homes[role].path)]
                assert subprocess.run(check, capture_output=True).returncode == 0
                process.terminate()
                assert process.wait(30) == 0, log.read_text()[-3000:]
                running.remove(process)
        assert "cannot locate" not in log.read_text()
    finally:
        for process in running:
            process.terminate()
            process.wait(30)


def health_check():
    party = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["x-party"]
    return party["healthcheck"]["test"][1:]


@isolated
def test_compiled_code_needs_no_place(tmp_path):
    """Read-only, nobody, no home: numba refused to compile, and so every import failed."""
    program = (
        "import fedbandit._splitmix as m, fedbandit._jit as jit, numpy as np\n"
        "print(int(m.mixed(np.uint64(1))), jit._has_place(m.mixed.py_func))"
    )
    done = subprocess.run(
        restricted([sys.executable, "-c", program], set()), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    from fedbandit._splitmix import mixed

    assert done.stdout.split() == [str(int(mixed(np.uint64(1)))), "False"]  # there is no place, and it works


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_the_units(unit, tmp_path):
    """Programs and users of the unit are those of another machine; nothing else may be wrong with it."""
    name = unit.name.replace("@", "@hospital-a")
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text(), flags=re.MULTILINE)
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(tmp_path / name)], capture_output=True, text=True
    )
    complaints = [line for line in done.stderr.splitlines() if name in line]
    assert complaints == []


def test_what_cannot_be_restarted_out_of_is_not_restarted():
    """Exit code 3: another plan. systemd does not start it again; a container does not end."""
    for unit in UNITS:
        if "broker" not in unit.name:
            assert "RestartPreventExitStatus=3" in unit.read_text()
    for command in image_commands().values():
        assert "--stay" in command
    for file in ("silo", "mixer", "analyzer"):
        assert "--stay" in (DEPLOY / "kubernetes" / f"{file}.yaml").read_text()


def test_the_brokers_container_does_not_hold_the_operators_key():
    """It was given the founder's whole directory."""
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["broker"]
    assert service["volumes"] == ["./broker:/broker"]
    assert service["command"] == ["-c", "/broker/nats.conf"]


def manifests():
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    return [(file.name, one) for file in files for one in yaml.safe_load_all(file.read_text())]


@pytest.mark.parametrize(
    "file, manifest", manifests(), ids=lambda value: value if isinstance(value, str) else value["kind"]
)
def test_kubernetes_takes_the_manifests(file, manifest):
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    validator.validate(manifest, validator.latest_version(), strict=True)


def test_each_node_of_the_broker_finds_its_own_certificate_in_its_volume(tmp_path):
    """Nothing said how a certificate gets onto a volume. A new one must take the place of the old one."""
    (node,) = [one for file, one in manifests() if file == "broker.yaml" and one["kind"] == "StatefulSet"]
    (container,) = node["spec"]["template"]["spec"]["containers"]
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/config", "/data"}
    config, data, programs = (tmp_path / name for name in ("config", "data", "bin"))
    for folder in (config, data, programs):
        folder.mkdir()
    for name, script in (("hostname", "echo broker-1"), ("nats-server", 'echo "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    command = [part.replace("/config", str(config)).replace("/data", str(data)) for part in container["command"]]
    for made in ("old", "new"):
        (config / "broker-ca.crt").write_text(f"{made} authority")
        for number in range(3):
            for kind in ("crt", "pem"):
                (config / f"broker-{number}.{kind}").write_text(f"{made} {kind} of {number}")
        path = f"{programs}:{os.environ['PATH']}"
        done = subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=True)
        assert done.stdout == f"-c {config}/broker-1.conf\n"
        found = [(data / name).read_text() for name in ("broker.crt", "broker.pem", "broker-ca.crt")]
        assert found == [f"{made} crt of 1", f"{made} pem of 1", f"{made} authority"]


def test_containers_of_kubernetes_have_no_privileges_and_a_read_only_root():
    sets = [one for _, one in manifests() if one["kind"] == "StatefulSet"]
    assert len(sets) == 4
    for one in sets:
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }


def test_the_image_is_made_from_what_it_needs_and_nothing_else():
    """No keys, stores or tokens of a party that lie in the folder."""
    lines = [line for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert kept == {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src"}
    assert all((DEPLOY.parent / name).exists() for name in kept)
