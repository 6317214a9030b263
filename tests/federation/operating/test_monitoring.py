"""What Prometheus makes of it: the rules are tried, every metric that they and the dashboard name exists, and a real
Prometheus scrapes every party and raises the alarm for a sync that has stalled."""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from fedbandit.federation.wire import broker
from tests.federation.operating.running import START, Running, get, metrics, until

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"
PROMTOOL, PROMETHEUS = shutil.which("promtool") or "", shutil.which("prometheus") or ""
installed = pytest.mark.skipif(
    not PROMTOOL or not PROMETHEUS, reason="Prometheus is not installed (apt-get install prometheus)"
)


@installed
def test_the_rules_are_right_and_do_what_they_say():
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run([PROMTOOL, *command], cwd=FOLDER, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


def wanted():
    """Metrics that the rules and the dashboard ask for."""
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += re.findall(r"expr: (.*)", (FOLDER / "alerts.yml").read_text())
    return set(re.findall(r"fedbandit_\w+", " ".join(asked)))


RARE = {"fedbandit_certificate_seconds", "fedbandit_reward_gain", "fedbandit_refused_messages_total"}


@pytest.mark.torture
@installed
def test_prometheus_scrapes_every_party_and_a_stalled_sync_fires(tmp_path):
    """The rules as they are shipped, but for how long they wait: a test has no minutes."""
    with Running(tmp_path / "fed") as running:
        running.everybody()
        until(lambda: metrics(running.homes["a"])["fedbandit_model_version"] > 0, START)
        served = "\n".join(get(home, "/metrics").text for home in running.homes.values())
        assert wanted() - RARE - set(re.findall(r"^(fedbandit_\w+)", served, flags=re.MULTILINE)) == set()
        rules = (FOLDER / "alerts.yml").read_text()
        hurried = re.sub(r"for: \d+\w", "for: 0s", rules).replace("+ 120", "+ 1")
        (tmp_path / "alerts.yml").write_text(hurried)
        jobs = [
            {
                "job_name": home.settings.name,
                "authorization": {"credentials": home.token()},
                "static_configs": [{"targets": [f"127.0.0.1:{home.served_on}"]}],
                "relabel_configs": [
                    {"target_label": "job", "replacement": "fedbandit"},
                    {"target_label": "instance", "replacement": home.settings.name},
                ],
            }
            for home in running.homes.values()
        ]
        often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config = {"global": often, "rule_files": [str(tmp_path / "alerts.yml")], "scrape_configs": jobs}
        (tmp_path / "prometheus.yml").write_text(json.dumps(config))
        port = broker.free_port()
        command = [
            *(PROMETHEUS, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"),
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:

            def asked(path, **query):
                """What Prometheus says; it answers 503, in plain text, until it is up."""
                answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/{path}", params=query, timeout=10)
                return answer.raise_for_status().json()["data"]

            def alerts():
                found = asked("alerts")["alerts"]
                return {(one["labels"]["alertname"], one["labels"].get("instance")) for one in found}

            def scraped():
                found = asked("query", query="fedbandit_ready == 1")["result"]
                return {one["metric"]["instance"] for one in found} == set(running.homes)

            until(scraped, START)
            assert ("FedbanditSyncStalled", "analyzer") not in alerts()
            running.signal("mixer", signal.SIGSTOP)
            until(lambda: ("FedbanditSyncStalled", "analyzer") in alerts(), 60)
            until(lambda: ("FedbanditSyncStalled", "a") in alerts(), 60)
            running.signal("mixer", signal.SIGCONT)
            until(lambda: ("FedbanditSyncStalled", "analyzer") not in alerts(), 60)
        finally:
            process.terminate()
            process.wait(30)
