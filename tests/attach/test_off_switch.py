"""What switches probing off is heard by every way in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.attach.attach import attach
from probing.attach.injectors.names import AUTO, NAMES
from probing.errors import AttachRefused
from probing.safety.off_switch import is_off, why_closed, x_options
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path

pytestmark = pytest.mark.anypython

Start = Callable[..., Target]

STARTS = {
    "start-up hook": "from probing import _boot; _boot.start()",
    "probing.start()": "import probing; probing.start()",
}
"""What brings the agent in from inside."""
CLOSED = {
    "PROBING_DISABLE=1": ({"PROBING_DISABLE": "1"}, [], "PROBING_DISABLE=1 is in its environment"),
    "PYTHON_DISABLE_REMOTE_DEBUG=1": (
        {"PYTHON_DISABLE_REMOTE_DEBUG": "1"},
        [],
        "remote debugging is switched off in it (PYTHON_DISABLE_REMOTE_DEBUG)",
    ),
    "-X disable_remote_debug": (
        {},
        ["-X", "disable_remote_debug"],
        "remote debugging is switched off in it (-X disable_remote_debug)",
    ),
}
"""What closes a process: its variables, its options, and the sentence."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts Python without an agent, ready to be attached to."""
    targets: list[Target] = []
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))

    def begin(*words: str, **extra: str) -> Target:
        cwd = tmp_path / str(len(targets))
        cwd.mkdir()
        targets.append(Target([sys.executable, *words], tmp_path / "home", cwd, **extra))
        targets[-1].wait_for_output("ready")
        return targets[-1]

    yield begin
    for target in targets:
        target.reap()


@pytest.mark.fault("E4")
@pytest.mark.parametrize("way", STARTS)
def test_the_variable_keeps_the_agent_out(way: str, tmp_path: Path, fault: Reached) -> None:
    """With PROBING_DISABLE=1 no start has any effect; without it, each of them starts the agent."""
    code = (
        f"{STARTS[way]}\nimport probing, sys, threading\nprobing.step(); probing.metric(x=1)\n"
        "print(threading.active_count(), 'probing.agent' in sys.modules)"
    )
    for word, expected in (("1", "1 False, no folder"), ("yes", "1 False, no folder"), ("0", "")):
        home = tmp_path / word
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=clean_env(home, PROBING="all", PROBING_DISABLE=word),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        got = f"{done.stdout.strip()}, {'a' if home.exists() else 'no'} folder{done.stderr}"
        if expected:
            fault.equals(f"{way}, PROBING_DISABLE={word}", expected, got)
        else:
            assert got == "2 True, a folder", "the test sees an agent that is there"


@pytest.mark.fault("E4")
@pytest.mark.parametrize("closed", CLOSED)
def test_a_closed_process_is_attached_to_by_no_method(
    closed: str, start: Start, fault: Reached
) -> None:
    """Every way in is refused with one sentence, and nothing in the process has changed."""
    variables, options, sentence = CLOSED[closed]
    target = start(*options, str(program_path("idle")), **variables)
    threads = len(os.listdir(f"/proc/{target.pid}/task"))
    for method in (AUTO, *NAMES):
        with pytest.raises(AttachRefused) as caught:
            attach(target.pid, how=method)
        expected = f"no agent can be put into process {target.pid}: {sentence}."
        assert caught.value.message == expected
        fault.equals(f"{closed}, attach by {method}", "attach_refused, exit code 4",
                     f"{caught.value.code}, exit code {caught.value.exit_code}")  # fmt: skip
    done = target.run(str(target.pid), "eval", "--unsafe", "1")
    assert (done.returncode, done.stdout) == (4, ""), done.stderr
    assert sentence in done.stderr
    assert len(os.listdir(f"/proc/{target.pid}/task")) == threads
    assert target.find_folder() is None


INSIDE = {
    "PROBING_DISABLE set by the program": (
        "import os; os.environ['PROBING_DISABLE'] = '1'",
        "PROBING_DISABLE=1 is in its environment",
    ),
    "an audit hook against probing.attach": (
        "import sys\ndef hook(event, facts):\n    if event == 'probing.attach':\n"
        "        print(event, *facts, flush=True)\n        raise SystemExit('not here')\n"
        "sys.addaudithook(hook)",
        "an audit hook of the process forbids it (SystemExit: not here)",
    ),
}
"""What only the process itself can tell: what it runs, and the sentence."""


@pytest.mark.fault("E4")
@pytest.mark.parametrize("inside", INSIDE)
def test_what_shows_only_inside_is_heard_as_well(inside: str, start: Start, fault: Reached) -> None:
    """A refusal that is found once the code has come in is told as any other; no agent starts."""
    code, sentence = INSIDE[inside]
    target = start("-c", f"{code}\nimport time\nprint('ready', flush=True)\ntime.sleep(600)")
    with pytest.raises(AttachRefused) as caught:
        attach(target.pid)
    expected = f"no agent can be put into process {target.pid}: {sentence}."
    fault.equals(inside, expected.replace(str(target.pid), "N"),
                 caught.value.message.replace(str(target.pid), "N"))  # fmt: skip
    assert target.find_folder() is None
    assert not (target.home / "probing").exists()
    assert target.process.poll() is None
    if "hook" in inside:
        assert target.output == f"ready\nprobing.attach {os.getuid()} {os.getpid()}\n"


def test_run_says_that_it_brings_no_agent(tmp_path: Path) -> None:
    """`probing run` runs the script all the same, and says that nothing of it is recorded."""
    (tmp_path / "script.py").write_text("print('ran')")
    done = subprocess.run(
        [sys.executable, "-m", "probing", "run", str(tmp_path / "script.py")],
        env=clean_env(tmp_path / "home", PROBING_DISABLE="1", PROBING="all"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert done.stdout == "ran\n"
    assert "PROBING_DISABLE is set: the script runs without an agent." in done.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("value", "off"),
    [("", False), ("0", False), (" off ", False), ("No", False), ("1", True), ("maybe", True)],
)
def test_only_a_clear_no_leaves_it_on(value: str, off: bool) -> None:
    """A switch that somebody has set and mistyped is set."""
    assert is_off({"PROBING_DISABLE": value}) is off
    assert (why_closed({"PROBING_DISABLE": value}, ()) is not None) is off


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python -X disable_remote_debug x.py", {"disable_remote_debug"}),
        ("python -Xdisable-remote-debug -c pass", {"disable-remote-debug"}),
        ("python -uX dev=1 -W ignore -Xa x.py -X b", {"dev", "a"}),
        ("python -m x -X b", set()),
        ("python -W -X x.py -X b", set()),
        ("python --check-hash-based-pycs -X -I -X a -", {"a"}),
        ("python", set()),
    ],
)
def test_options_of_a_command_line_are_told_from_the_programs(
    command: str, options: set[str]
) -> None:
    """Python's own `-X` options end where the program's words begin."""
    assert x_options(command.split()) == options
