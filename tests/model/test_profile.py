"""Profiles of the steps of real trainings: right, harmless, and gone when they are over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from probing.errors import ProbingError, ProcessEnded
from probing.messages import common as wire
from probing.profiling import read_trace, summarize
from probing.reach import transport
from probing.reach.address import Address
from tests.harness.targets import DEADLINE_S, Target, start_program, wait_until
from tests.harness.web import needs_page

pytestmark = pytest.mark.torch

Start = Callable[..., Target]
Ask = Callable[..., "Asking"]


@pytest.fixture
def start(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Target]:
    """Starts the program in one of its ways, and waits until it is ready."""

    def begin(way: str) -> Target:
        target = program("profiled", way)
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        target.wait_for_output("ready")
        target.wait_for_agent()
        return target

    return begin


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Target]]:
    """Starts the program once in each way, for tests that change nothing of it."""
    started: dict[str, Target] = {}

    def begin(way: str) -> Target:
        if way not in started:
            cwd = tmp_path_factory.mktemp(way)
            started[way] = start_program("profiled", way, home=cwd / "home", cwd=cwd)
            started[way].wait_for_output("ready")
            started[way].wait_for_agent()
        return started[way]

    yield begin
    for target in started.values():
        target.reap()


def progress(target: Target) -> wire.ProfileProgress:
    """How far the profile under way is."""
    address = Address(path=target.folder.socket)
    data = transport.ask(address, "profile_progress", timeout_s=30)
    return wire.decode(wire.ProfileProgress, data)


class Asking:
    """The command `profile`, running beside the test."""

    def __init__(self, target: Target, *args: str) -> None:
        self.target = target
        self.command = subprocess.Popen(
            [sys.executable, "-m", "probing", str(target.pid), "profile", *args],
            env=target.env,
            cwd=target.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until_it_is(self, state: str) -> None:
        """Wait for the profile to be in a state, or for the command to have ended."""
        wait_until(
            lambda: self.command.poll() is not None or progress(self.target).state == state, state
        )

    def go(self, name: str = "go") -> None:
        """Let the program go on."""
        (self.target.cwd / name).touch()

    def end(self) -> tuple[int, str, str]:
        """Exit code and output."""
        out, err = self.command.communicate(timeout=DEADLINE_S)
        return self.command.returncode, out, err

    def reap(self) -> None:
        """End it, whatever has become of it."""
        if self.command.returncode is None:
            self.command.kill()
            self.command.communicate()


@pytest.fixture
def ask() -> Iterator[Callable[..., Asking]]:
    """Runs the command `profile` beside the test."""
    running: list[Asking] = []

    def begin(target: Target, *args: str, state: str = "waiting") -> Asking:
        running.append(asking := Asking(target, *args))
        asking.wait_until_it_is(state)
        return asking

    yield begin
    for asking in running:
        asking.reap()


def facts(target: Target) -> dict[str, Any]:
    """What the program printed at its end."""
    assert target.process.wait(DEADLINE_S) == 0, target.output
    found = re.search(r"^facts (.*)$", target.output, re.MULTILINE)
    assert found is not None, target.output
    result: dict[str, Any] = json.loads(found[1])
    return result


def test_the_training_does_not_notice(start: Start, ask: Ask) -> None:
    """Losses are the same to the last bit, nothing is printed, and nothing is left in torch."""
    alone = start("waits")
    (alone.cwd / "go").touch()
    target = start("waits")
    asking = ask(target, "--steps", "3")
    asking.go()
    code, out, err = asking.end()
    assert (code, err) == (0, ""), err
    assert "steps 6 to 8" in out
    assert "aten::addmm" in out
    left = facts(target)
    assert left["losses"] == facts(alone)["losses"]
    assert left["on"] is False
    assert left["wrapped"] == "torch._C._autograd" * 2
    said = target.output.split("facts")[0].splitlines()
    assert set(said) <= {"ready", "waits for go"}, "no library has said anything"


def test_a_profile_of_a_starved_training_begins_with_that(program: Start) -> None:
    """Where most of a step is spent on waiting for data, that is told before any operator."""
    target = program("starved")
    target.wait_for_step(2)
    done = target.run(str(target.pid), "profile", "--steps", "2")
    assert done.stdout.startswith("the training waits for data"), done.stdout + done.stderr
    assert "each step is waiting for data" in done.stdout


def test_operators_are_those_that_torch_counts(shared: Start) -> None:
    """Three steps have as many calls of each operator as three under torch.profiler have."""
    found = connected(shared("forever")).profile(3).profile
    calls = {kernel.name: kernel.calls for kernel in found.kernels}
    theirs = figures(shared("compares"))
    assert calls
    assert calls == {name: count for name, (count, _) in theirs.items() if name in calls}
    missing = [name for name in theirs if name not in calls]
    assert [name for name in missing if name.startswith(("aten::", "autograd::"))] == []


def connected(target: Target) -> probing.Process:
    """The process of a target, by its folder."""
    return probing.connect(str(target.folder.path))


def test_times_are_those_that_torch_computes(shared: Start) -> None:
    """Of the same events, each operator's own time is that of torch's key_averages()."""
    target = shared("compares")
    theirs = figures(target)
    profile = summarize(read_trace((target.cwd / "trace.json").read_bytes()))
    assert len(profile.steps) == 3
    for kernel in profile.kernels:
        count, microseconds = theirs[kernel.name]
        assert kernel.calls == count
        assert (kernel.self_cpu_ns or 0) / 1000 == pytest.approx(microseconds, abs=0.1 * count)
    total = sum(kernel.self_cpu_ns or 0 for kernel in profile.kernels)
    assert total == profile.busy_ns, "no time is counted twice, and none is left out"


def figures(target: Target) -> dict[str, tuple[int, float]]:
    """Calls and own microseconds by name, as torch has them."""
    assert target.process.wait(DEADLINE_S) == 0, target.output
    found = re.search(r"^figures (.*)$", target.output, re.MULTILINE)
    assert found is not None
    return {name: (count, own) for name, (count, own) in json.loads(found[1]).items()}


def test_each_operator_has_its_module(shared: Start) -> None:
    """What a layer runs is the layer's, forwards by its own annotation and backwards as often."""
    trace = connected(shared("forever")).profile(3).trace
    layers = [note for note in trace.annotations if note.name.startswith("layer ")]
    assert len(layers) == 12
    for note in layers:
        name = note.name.removeprefix("layer ")
        inside = [o for o in trace.ops if note.start_ns <= o.start_ns < note.end_ns]
        assert {op.module for op in inside} == {name, f"{name}.inner"}
        products = {op.module for op in inside if op.name == "aten::addmm"}
        assert products == {f"{name}.inner"}
    for number in range(4):
        back = [op.name for op in trace.ops if (op.module, op.stage) == (f"{number}", "backward")]
        assert back.count("ReluBackward0") == 3
        inner = [op for op in trace.ops if op.module == f"{number}.inner"]
        names = [op.name for op in inner if op.stage == "backward"]
        assert names.count("AddmmBackward0") == 3
    steps = [op for op in trace.ops if op.stage == "optimizer"]
    assert {op.module for op in steps} == {"SGD"}


def test_the_last_profile_answers_sql_even_after_the_end(start: Start) -> None:
    """python.kernels has its rows, shares that add up, and NULL for what is no kernel's."""
    target = start("forever")
    job = probing.connect(target.pid)
    assert job.query("SELECT * FROM python.kernels").to_pylist() == []
    profile = job.profile(2).profile
    target.kill()
    rows = probing.connect(str(target.folder.path)).query("SELECT * FROM python.kernels")
    found = rows.to_pylist()
    assert [row["name"] for row in found] == [kernel.name for kernel in profile.kernels]
    assert sum(row["share"] for row in found) == pytest.approx(1)
    assert {row["self_device_ns"] for row in found} == {None}
    assert {(r["first_step"], r["last_step"]) for r in found} == {
        (profile.steps[0].step, profile.steps[0].step + 1)
    }


@pytest.mark.parametrize("way", ["own", "warming"])
def test_a_profiler_of_the_program_is_left_alone(way: str, start: Start, ask: Ask) -> None:
    """The command is refused with a way out; the program's profiler goes on to its end."""
    target = start(way)
    target.wait_for_output("waits for go")
    asking = ask(target, state="refused")
    asking.go()
    code, out, err = asking.end()
    assert (code, out) == (4, "")
    assert "the program runs torch.profiler itself" in err
    assert "--sampling" in err
    assert facts(target)["on"] is False


def test_a_profiler_that_the_program_starts_comes_first(start: Start, ask: Ask) -> None:
    """Ours makes way in the midst of a step; theirs sees its events, and nothing crashes."""
    target = start("starts")
    asking = ask(target, "--steps", "5")
    asking.go("begin")
    wait_until(lambda: progress(target).done == 1, "the profiler to run")
    asking.go()
    code, _, err = asking.end()
    assert code == 4
    assert "the program started torch.profiler itself meanwhile" in err
    left = facts(target)
    assert "own profiler saw True" in target.output
    assert left["on"] is False
    assert left["wrapped"] == "torch._C._autograd" * 2


def test_a_training_without_steps_is_not_waited_for(start: Start, ask: Ask) -> None:
    """Exit code 5 and a sentence; the training goes on, and may be profiled later."""
    target = start("waits")
    target.wait_for_server()
    done = target.run(str(target.pid), "profile", "--timeout", "3")
    assert done.returncode == 5
    assert "the training did not reach the end of a step within 3 s, so nothing was profiled" in (
        done.stderr
    )
    asking = ask(target, "--steps", "1")
    asking.go()
    assert asking.end()[0] == 0
    assert facts(target)["on"] is False


def test_a_training_that_hangs_in_the_midst(start: Start, ask: Ask) -> None:
    """Exit code 5, what was reached, and the profiler is off at the end of that step."""
    target = start("hangs")
    asking = ask(target, "--steps", "1000", "--timeout", "10", state="running")
    asking.go("hang")
    code, _, err = asking.end()
    assert code == 5
    assert "turned off as a model is called next, or the step in progress ends" in err
    again = target.run(str(target.pid), "profile", "--steps", "1")
    assert "already has 1 profile under way" in again.stderr
    asking.go()
    assert facts(target)["on"] is False


def test_ctrl_c_ends_it(start: Start, ask: Ask) -> None:
    """The command leaves with 130, and the profiler is off soon; the next one may begin."""
    target = start("forever")
    asking = ask(target, "--steps", "1000", state="running")
    asking.command.send_signal(signal.SIGINT)
    assert asking.end()[0] == 130
    wait_until(lambda: progress(target).state == "idle", "the profile to be over")
    again = target.run(str(target.pid), "profile")
    assert again.returncode == 0, again.stderr


def test_a_process_that_ends_meanwhile(start: Start, ask: Ask) -> None:
    """Exit code 3, and a sentence that says so."""
    target = start("waits")
    asking = ask(target)
    target.kill()
    code, _, err = asking.end()
    assert code == ProcessEnded.exit_code
    assert f"process {target.pid} has ended" in err


def test_an_agent_that_leaves_meanwhile(start: Start, ask: Ask) -> None:
    """The command gets a sentence; the training is as it was without the agent."""
    target = start("waits")
    asking = ask(target)
    assert target.run(str(target.pid), "detach").returncode == 0
    code, _, err = asking.end()
    assert code in (3, 4)
    assert "the agent left" in err or "its agent left it meanwhile" in err
    asking.go()
    left = facts(target)
    assert left["on"] is False
    assert left["wrapped"] == "torch._C._autograd" * 2


def test_an_agent_that_leaves_while_a_profiled_step_hangs(start: Start, ask: Ask) -> None:
    """The profiler, which only the training thread can turn off, is off at the end of that step."""
    target = start("hangs")
    asking = ask(target, "--steps", "1000", state="running")
    asking.go("hang")
    target.wait_for_output("hangs")
    assert target.run(str(target.pid), "detach").returncode == 0
    assert asking.end()[0] in (3, 4)
    asking.go()
    left = facts(target)
    assert left["on"] is False
    assert left["wrapped"] == "torch._C._autograd" * 2


@pytest.mark.anypython
def test_a_process_without_steps_is_refused(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torch is not loaded, or recording is off, the sentence says what works instead."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    with pytest.raises(ProbingError, match="has not imported torch") as failure:
        probing.connect(target.pid).profile()
    assert failure.value.exit_code == 4
    assert "--sampling" in failure.value.help


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("p.md", "| aten::addmm |"),
        ("p.json", '"gemm"'),
        ("p.trace.json", "ProfilerStep#"),
        ("p.speedscope.json", "speedscope.app"),
        pytest.param("p.html", '"stacks": {', marks=needs_page),
        ("trace.json", "ProfilerStep#"),
        ("p.svg", "http://www.w3.org/2000/svg"),
    ],
)
def test_every_format_is_written(name: str, holds: str, shared: Start) -> None:
    """The suffix tells the format, and the file has operators and modules in it."""
    target = shared("forever")
    done = target.run(str(target.pid), "profile", "--steps", "1", "-o", name)
    assert done.returncode == 0, done.stderr
    text = (target.cwd / name).read_text()
    assert holds in text
    assert "aten::addmm" in text


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Target]:
    """A process without an agent, one of whose threads works and one of which waits."""
    code = (
        "import threading, time\n"
        "def work():\n    while True: sum(range(1000))\n"
        "def rest():\n    time.sleep(600)\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "print('ready', flush=True)\nrest()\n"
    )
    target = Target([sys.executable, "-c", code], tmp_path / "home", tmp_path)
    target.wait_for_output("ready")
    yield target
    target.reap()


@pytest.mark.anypython
def test_sampling_needs_no_agent(stranger: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that work are sampled by default, those that wait only when asked for."""
    monkeypatch.setenv("PROBING_HOME", str(stranger.home))
    job = probing.connect(stranger.pid)
    told: list[float] = []
    busy = job.sample(1, tell=told.append)
    assert "work" in str(busy.stacks)
    assert "rest" not in str(busy.stacks)
    assert told
    assert "rest" in str(job.sample(1, idle=True).stacks)


@pytest.mark.anypython
def test_sampling_shows_where_a_process_hangs(program: Callable[..., Target]) -> None:
    """A process that does nothing is sampled, too, and the note says why threads that wait show."""
    target = program("idle", PROBING="all")
    target.wait_for_output("ready")
    done = target.run(str(target.pid), "profile", "--sampling", "50", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "no thread used the processor" in done.stderr
    assert "idle.py" in done.stdout
    assert "probing-agent" not in done.stdout


@pytest.mark.anypython
def test_a_timeline_of_samples(stranger: Target) -> None:
    """The format `chrome` has the samples in the order of time."""
    args = ("profile", "--sampling", "100", "--seconds", "1", "--format", "chrome")
    done = stranger.run(str(stranger.pid), *args)
    assert done.returncode == 0, done.stderr
    events = json.loads(done.stdout)
    assert {event["ph"] for event in events} == {"B", "E"}
    names = {event["name"] for event in events}
    assert "work" in names
    assert "rest" not in names


_IN_A_THREAD = """
import ctypes, threading, torch
from probing.agent.sources.calls.quiet_start import quiet_start

def profile():
    profiler = torch.profiler._KinetoProfile(activities=[torch.profiler.ProfilerActivity.CPU])
    with quiet_start():
        library = ctypes.CDLL(None)
        library.fputs(b"of the program\\n", ctypes.c_void_p.in_dll(library, "stderr"))
        profiler.start()
    profiler.stop()

thread = threading.Thread(target=profile)
thread.start()
thread.join()
"""


def test_the_first_profile_in_another_thread_prints_nothing() -> None:
    """What other C code writes to stderr meanwhile gets there."""
    done = subprocess.run(
        [sys.executable, "-c", _IN_A_THREAD],
        env={**os.environ, "KINETO_LOG_LEVEL": "99", "PROBING": "0"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stderr == "of the program\n"
