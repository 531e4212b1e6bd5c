"""`/metrics` of a node server: what Prometheus scrapes, read by the parser of the format."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_token_path
from probing.stacks.work_done import children_of
from tests.harness.targets import DEADLINE_S, ROOT, Target, wait_until

pytestmark = pytest.mark.torch

RULES = ROOT / "examples" / "prometheus"


class Node:
    """A node server of the training's run directory."""

    def __init__(self, training: Target, folder: Path, **env: str) -> None:
        argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
        self.target = Target(argv, training.home, folder, **env)
        self.target.wait_for_output("listening on")
        found = re.search(r"listening on 127.0.0.1:(\d+);", self.target.output)
        assert found is not None
        self.port = int(found[1])
        self.token = read_token_path(RunDirectory(training.home)).read_text()

    def get(self, token: str) -> tuple[int, str, str]:
        """Status, kind and text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        try:
            kind = response.headers["Content-Type"]
            return response.status, kind, response.read().decode()
        finally:
            connection.close()

    def figures(self, pid: int) -> dict[str, float]:
        """Those of one process, with the phase or reason in the name where there is one."""
        status, kind, text = self.get(self.token)
        assert status == 200, text
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        found = {}
        for family in text_string_to_metric_families(text):
            assert family.type == "gauge"
            for sample in family.samples:
                if sample.labels["pid"] == str(pid):
                    more = sample.labels.get("phase") or sample.labels.get("reason", "")
                    found[f"{sample.name.removeprefix('probing_')} {more}".strip()] = sample.value
        return found


@pytest.fixture
def node(training: Target, tmp_path: Path) -> Iterator[Node]:
    """One that runs."""
    started = Node(training, tmp_path)
    yield started
    started.target.reap()


def test_prometheus_gets_what_is_on_record(training: Target, node: Node) -> None:
    """Figures are those of python.steps; phases add up; a stopped process has them, too."""
    assert node.get("no token")[0] == 401
    first = node.figures(training.pid)
    training.wait_for_step(int(first["step"]) + 5)
    found = node.figures(training.pid)
    assert found["up"] == 1
    assert found["step"] > first["step"]
    assert 0 < found["recording_seconds"] < found["step_seconds"]
    assert {"loss", "learning_rate", "tokens_per_second", "memory_bytes"} <= set(found)
    phases = [value for name, value in found.items() if name.startswith("step_phase_seconds ")]
    assert len(phases) > 4
    os.kill(training.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: node.figures(training.pid)["step_age_seconds"] > 1, "an older step")
        stopped = node.figures(training.pid)
        asked = training.run(
            str(training.pid), "query", "--format", "csv",
            "SELECT loss, lr, grad_norm FROM steps WHERE duration IS NOT NULL"
            " ORDER BY seq DESC LIMIT 1",
        )  # fmt: skip
    finally:
        os.kill(training.pid, signal.SIGCONT)
    loss, rate, norm = map(float, asked.stdout.splitlines()[1].split(","))
    assert (stopped["loss"], stopped["learning_rate"]) == (loss, rate)
    assert stopped["gradient_norm"] == pytest.approx(norm)
    assert not math.isnan(stopped["step_seconds"])


def test_a_crash_and_an_orderly_end_differ(program: Callable[..., Target], tmp_path: Path) -> None:
    """Both are not up, and each says how it ended; the job of one by itself is its script."""
    crashed, finished = program("exits", "exception"), program("exits", "returns")
    for target in (crashed, finished):
        target.process.wait(DEADLINE_S)
    (tmp_path / "node").mkdir()
    node = Node(crashed, tmp_path / "node")
    try:
        assert node.figures(crashed.pid) == {"up": 0, "ended exception": 1}
        assert node.figures(finished.pid) == {"up": 0, "ended orderly": 1}
        assert f'probing_up{{job="exits",pid="{crashed.pid}"}} 0.0' in node.get(node.token)[2]
    finally:
        node.target.reap()


def test_what_the_doctor_finds_is_there_where_it_is_asked_for(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """By its rule, and how sure it is; the watch ends with the node server."""
    crashed = program("exits", "exception")
    crashed.process.wait(DEADLINE_S)
    (tmp_path / "node").mkdir()
    node = Node(crashed, tmp_path / "node", PROBING_EXPORT_FINDINGS="1")
    labels = f'certainty="certain",job="exits",pid="{crashed.pid}",rule="ended"'
    try:
        wait_until(
            lambda: f"probing_finding{{{labels}}} 1.0" in node.get(node.token)[2],
            "the finding", 3 * DEADLINE_S,
        )  # fmt: skip
        (watching,) = children_of(node.target.pid)
    finally:
        node.target.process.terminate()
        node.target.process.wait(DEADLINE_S)
        node.target.reap()
    wait_until(lambda: not Path(f"/proc/{watching}").exists(), "the end of the watch")


def expressions() -> dict[str, list[str]]:
    """Those of the dashboard, by panel, with all chosen."""
    board = json.loads((RULES / "dashboard.json").read_text())
    everything = ("$job", ".*"), ("$rank", ".*")
    found = {}
    for panel in board["panels"]:
        texts = [target["expr"] for target in panel["targets"]]
        for variable, value in everything:
            texts = [text.replace(variable, value) for text in texts]
        found[panel["title"]] = texts
    return found


def test_the_dashboard_asks_for_what_there_is(training: Target, node: Node) -> None:
    """Each panel has figures of a training, but for those that only a fault or an end makes."""
    training.wait_for_step(8)
    names = {name.partition(" ")[0] for name in node.figures(training.pid)}
    for title, texts in expressions().items():
        asked = {name for text in texts for name in re.findall(r"probing_(\w+)", text)}
        assert asked, title
        assert asked <= names | {"stalled_seconds", "ended", "finding"}, title


@pytest.mark.nightly
def test_promtool_accepts_format_and_rules(training: Target, node: Node, tmp_path: Path) -> None:
    """Prometheus' own tool finds nothing in the figures, and the alerts fire where they should."""
    assert shutil.which("promtool"), "this test needs promtool: apt-get install prometheus"
    _, _, text = node.get(node.token)
    plain = text.replace("# EOF\n", "")
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=plain, text=True, capture_output=True, check=False
    )
    assert "error" not in done.stderr, done.stderr
    for words in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        subprocess.run(["promtool", *words], cwd=RULES, check=True, capture_output=True)
    rules = [
        {"record": f"panel:{number}", "expr": text}
        for number, text in enumerate(text for texts in expressions().values() for text in texts)
    ]
    board = tmp_path / "board.yml"  # JSON is YAML
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", board], check=True, capture_output=True)
