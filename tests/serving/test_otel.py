"""A node server that sends to a receiver of OpenTelemetry, which decodes what it gets."""

from __future__ import annotations

import importlib
import pkgutil
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import opentelemetry.semconv._incubating.attributes as incubating
import pytest

from probing.cluster.node.figures import ENDED, FIGURES, PHASE, UP
from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_token_path
from tests.harness.otel_receiver import Receiver, Step
from tests.harness.targets import DEADLINE_S, Target, start_training, wait_until

pytestmark = pytest.mark.torch


def serving(home: Path, cwd: Path, url: str, **extra: str) -> Target:
    """A node server that sends there, often."""
    cwd.mkdir()
    env = {
        "PROBING_OTEL": "1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }
    argv = [sys.executable, "-m", "probing", "serve", "--listen", "127.0.0.1:0"]
    return Target(argv, home, cwd, **{**env, **extra})


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """One whose port is taken, and that does not listen yet."""
    made = Receiver()
    yield made
    made.close()


def scrape(node: Target) -> urllib.request.Request:
    """The request for what Prometheus would get."""
    found = re.search(r"listening on ([\d.:]+);", node.output)
    assert found is not None
    token = read_token_path(RunDirectory(node.home)).read_text()
    headers = {"Authorization": f"Bearer {token}"}
    return urllib.request.Request(f"http://{found[1]}/metrics", headers=headers)


def conventions() -> set[str]:
    """The names of attributes in OpenTelemetry's semantic conventions."""
    found = set()
    for info in pkgutil.iter_modules(incubating.__path__):
        module = importlib.import_module(f"{incubating.__name__}.{info.name}")
        found |= {value for value in vars(module).values() if isinstance(value, str)}
    return found


def check_who(resource: Any, training: Target) -> None:
    """A resource has names that others know, and what the user has said."""
    own = {name for name in resource if name.startswith("probing.")}
    assert set(resource) - own - {"team"} <= conventions()
    assert (resource["process.pid"], resource["team"]) == (training.pid, "vision")
    assert resource["service.name"] == "train_gpt"
    assert resource["service.instance.id"].endswith(f":{training.folder.path.name}")
    assert resource["telemetry.distro.name"] == "probing"
    assert not [value for value in resource.values() if "--layers" in str(value)]


def check_steps(steps: list[Step], training: Target) -> None:
    """Each comes once, in order, in one trace, with times and phases of its row."""
    rows = training.run(
        str(training.pid), "query", "--format", "csv",
        "SELECT step, start_ns, duration_ns, forward_s, backward_s, loss FROM steps",
    )  # fmt: skip
    assert rows.returncode == 0, rows.stderr
    of = {int(row.split(",")[0]): row.split(",")[1:] for row in rows.stdout.splitlines()[1:]}
    told = [step.step for step in steps]
    assert told == list(range(told[0], told[0] + len(told)))
    assert len({step.span.trace_id for step in steps}) == 1
    for one in steps:
        begun_ns, took_ns, forward_s, backward_s, loss = of[one.step]
        assert one.span.name == "training step"
        assert not one.span.parent_span_id
        took = one.span.end_time_unix_nano - one.span.start_time_unix_nano
        assert (one.span.start_time_unix_nano, took) == (int(begun_ns), int(took_ns))
        assert one.values["probing.phase.forward.duration"] == pytest.approx(float(forward_s))
        assert one.values["probing.phase.backward.duration"] == pytest.approx(float(backward_s))
        assert one.values["probing.loss"] == pytest.approx(float(loss), rel=1e-5)
        phases = [value for name, value in one.values.items() if ".phase." in name]
        assert sum(phases) == pytest.approx(took / 1e9, rel=0.02)


def test_a_receiver_that_comes_late_gets_all(
    training: Target, receiver: Receiver, tmp_path: Path
) -> None:
    """Steps made while nobody listened follow; both is told once; units are OpenTelemetry's."""
    resource = "team=vision,service.name=train_gpt"
    node = serving(
        training.home, tmp_path / "node", receiver.url, OTEL_RESOURCE_ATTRIBUTES=resource,
        OTEL_EXPORTER_OTLP_TIMEOUT="60",
    )  # fmt: skip
    try:
        for kind in ("metrics", "traces"):
            node.wait_for_output(f"{receiver.url}/v1/{kind} does not take {kind}: ")
        begun = training.step()
        training.wait_for_step(begun + 3)
        with receiver:
            wait_until(lambda: receiver.points() and receiver.steps(), "figures and steps")
            came = training.step()
            wait_until(lambda: receiver.steps()[-1].step > came, "steps of now")
            for kind in ("metrics", "traces"):
                node.wait_for_output(f"{receiver.url}/v1/{kind} takes {kind} now.")
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(DEADLINE_S) == 0
            steps, points = receiver.steps(), receiver.points()
    finally:
        node.reap()
    assert len(re.findall("does not take", node.output)) == 2, node.output
    assert len(node.output.splitlines()) == 5, node.output
    assert steps[0].step <= begun + 1
    check_steps(steps, training)
    for resource_of in (steps[-1].resource, points[-1].resource):
        check_who(resource_of, training)
    units = {f"probing.{one.otel}": one.otel_unit for one in (*FIGURES, PHASE, UP, ENDED)}
    found = {one.metric.name: one.metric.unit for one in points}
    assert found == {name: units[name] for name in found}
    assert {"probing.up", "probing.loss", "probing.step.duration"} <= set(found)
    last = [one for one in points if one.metric.name == "probing.step"][-1]
    assert begun < last.value <= training.step()


def test_the_step_that_a_crash_ends_is_sent(program: Callable[..., Target], tmp_path: Path) -> None:
    """As an error of its class, in the same trace; and that the process has ended by it."""
    with Receiver() as receiver:
        node = serving(tmp_path / "home", tmp_path / "node", receiver.url)
        try:
            node.wait_for_output("listening on")
            assert program("exits", "exception").process.wait(DEADLINE_S) == 1
            wait_until(lambda: [step.step for step in receiver.steps()][3:], "all steps")
            wait_until(
                lambda: "probing.ended" in [one.metric.name for one in receiver.points()],
                "that it has ended",
            )
        finally:
            node.reap()
        *others, last = receiver.steps()
        reasons = [one.values["probing.end.reason"] for one in receiver.points()
                   if one.metric.name == "probing.ended"]  # fmt: skip
    assert [step.span.status.code for step in others] == [0] * 3
    assert (last.span.status.code, last.span.status.message) == (2, "RuntimeError ended the step")
    assert last.values["error.type"] == "RuntimeError"
    assert {step.span.trace_id for step in others} == {last.span.trace_id}
    (event,) = last.span.events
    assert [(one.key, one.value.string_value) for one in event.attributes] == [
        ("exception.type", "RuntimeError")
    ]
    assert set(reasons) == {"exception"}


@pytest.mark.nightly
def test_the_end_of_a_training_is_sent(tmp_path: Path) -> None:
    """Its last steps, and that it is not up; the ranks of a job are told apart at every point."""
    training = start_training(
        home=tmp_path / "home", cwd=tmp_path, RANK="1", WORLD_SIZE="2", PROBING_JOB="gpt"
    )
    with Receiver() as receiver:
        node = serving(
            training.home, tmp_path / "node", receiver.url, OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20mine",
        )  # fmt: skip
        try:
            wait_until(lambda: receiver.steps() and receiver.points(), "steps")
            training.kill()
            ended = training.step() - 1  # the last one was in progress
            wait_until(lambda: receiver.steps()[-1].step >= ended, "the last steps")
            wait_until(
                lambda: (
                    ("probing.ended", 1)
                    in [(one.metric.name, one.value) for one in receiver.points()[-1:]]
                ),
                "that it has ended",
            )
        finally:
            node.reap()
            training.reap()
        who = {"probing.job": "gpt", "probing.rank": 1}
        up, last = receiver.points()[-2:]
        assert (up.metric.name, up.value, up.values) == ("probing.up", 0, who)
        assert last.values == {**who, "probing.end.reason": "killed"}
        assert all(headers["authorization"] == "Bearer mine" for _, headers, _ in receiver.requests)


@pytest.mark.nightly
@pytest.mark.parametrize("status", [None, 500, 503])
def test_a_bad_receiver_harms_nobody(training: Target, tmp_path: Path, status: int | None) -> None:
    """One that never answers or refuses is told of once; the server answers, and ends at once."""
    with Receiver(status=status) as receiver:
        node = serving(training.home, tmp_path / "node", receiver.url)
        try:
            node.wait_for_output("does not take traces")
            wait_until(lambda: len(receiver.requests) > 6, "tries")
            answer = urllib.request.urlopen(scrape(node), timeout=DEADLINE_S)
            assert f'pid="{training.pid}"' in answer.read().decode()
            begun = time.monotonic()
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(DEADLINE_S) == 0
            assert time.monotonic() - begun < 10
        finally:
            node.reap()
    assert len(node.output.splitlines()) == 3, node.output


def test_a_mistake_in_the_variables_is_said(tmp_path: Path) -> None:
    """In one sentence, with what to do, and nothing is served."""
    node = serving(
        tmp_path / "home",
        tmp_path / "node",
        "http://127.0.0.1:1",
        OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
    )
    assert node.process.wait(DEADLINE_S) == 2
    assert node.output.splitlines() == [
        "error: OTEL_EXPORTER_OTLP_PROTOCOL is grpc: a node server sends http/protobuf alone.",
        "Set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and the address to that port of the"
        " receiver, usually 4318.",
    ]
