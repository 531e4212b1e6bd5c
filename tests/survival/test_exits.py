"""What is told of a process that exits by itself: with which code, and by which line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from probing.messages.codec import encode
from probing.postmortem.endings import ORDERLY, ending_of
from probing.postmortem.exits import ExitCall, exit_call, exit_of
from probing.ring.native import IN_C
from probing.rundir.folders import ProcessFolder, RunDirectory
from tests.harness.targets import DEADLINE_S, clean_env, program_path

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(IN_C is None, reason="only the C part is told of exits"),
]

_AT = r" at exiting\.py:\d+ in leave\."
_IN_OWN = r"own_exit\.<locals>\." if sys.version_info >= (3, 11) else ""
"""Where a function stands, which older Pythons do not say."""
FAILURES = {
    "code": (3, rf"exit code 3, by sys\.exit\(3\){_AT}"),
    "message": (1, rf"exit code 1, by sys\.exit\('no data at all'\){_AT}"),
    "object": (1, rf"exit code 1, by sys\.exit\('a list'\){_AT}"),
    "negative": (255, rf"exit code 255, by sys\.exit\(255\){_AT}"),
    "raised": (4, r"exit code 4, and no exception of it is on record\."),
    "asked for": (5, r"exit code 5, and no exception of it is on record\."),
    "caught and raised": (4, r"exit code 4, and no exception of it is on record\."),
    "parse": (2, r"exit code 2, by sys\.exit\(2\) at exiting\.py:\d+ in parse\."),
    "own": (3, rf"exit code 3, by sys\.exit\(3\) at exiting\.py:\d+ in {_IN_OWN}<lambda>\."),
}
WELL = ("zero", "none", "nothing", "at its end", "caught", "in thread", "traced")


def run(way: str, cwd: Path, *, agent: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the program of exits to its end."""
    env = clean_env(cwd / "home", PROBING="0", **({"AGENT": "1"} if agent else {}))
    argv = [sys.executable, str(program_path("exiting")), way]
    return subprocess.run(
        argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )


def ending(cwd: Path) -> str:
    """How the one process with an agent ended."""
    (folder,) = RunDirectory(cwd / "home").folders()
    found = ending_of(folder, [])
    assert found is not None
    return " ".join(found.sentences)


@pytest.mark.parametrize("way", FAILURES)
def test_another_exit_code_than_0_is_a_failure(way: str, tmp_path: Path) -> None:
    """The code is told, and the line of the script that called `sys.exit`."""
    code, words = FAILURES[way]
    assert run(way, tmp_path).returncode == code
    assert re.fullmatch(f"It left by itself with {words}", ending(tmp_path)), ending(tmp_path)


@pytest.mark.parametrize("way", WELL)
def test_exit_code_0_is_an_orderly_end(way: str, tmp_path: Path) -> None:
    """So it is where one was called for and not obeyed, or ended a thread."""
    assert run(way, tmp_path).returncode == 0
    assert ending(tmp_path).startswith(ORDERLY)


def test_the_agent_is_not_seen_in_an_exit(tmp_path: Path) -> None:
    """The same traceback, signature, pickle and refusals as without it."""
    seen, alone = (run("traced", tmp_path, agent=agent) for agent in (True, False))
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, alone.stdout, "")


def test_a_child_of_multiprocessing_is_told_by_its_own_line(tmp_path: Path) -> None:
    """The package calls `sys.exit` with the same code once more, in code that nobody looks for."""
    env = clean_env(tmp_path / "home", PROBING="all")
    argv = [sys.executable, str(program_path("exiting")), "in child"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )
    pid, code = map(int, done.stdout.split())
    (folder,) = (one for one in RunDirectory(tmp_path / "home").folders() if one.pid == pid)
    assert code == 3
    call = exit_call(folder, code)
    assert call is not None
    assert re.fullmatch(r"sys\.exit\(3\) at exiting\.py:\d+ in leave", call.words)


def test_the_commands_tell_a_failure(tmp_path: Path) -> None:
    """`hang --check` ends with the code of a crash, and all advise only what answers."""
    run("code", tmp_path)
    (folder,) = RunDirectory(tmp_path / "home").folders()
    env = clean_env(tmp_path / "home")
    for command, code in (((), 0), (("hang", "--check"), 6), (("doctor",), 0)):
        argv = [sys.executable, "-m", "probing", str(folder.path), *command]
        done = subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S
        )
        said = re.sub(r" +certain\n", "\n", done.stdout)  # which stands at the right
        said = " ".join(said.split())
        assert done.returncode == code, done.stderr
        assert "t left by itself with exit code 3, by sys.exit(3) at exiting.py:" in said
        assert ("Look at what leads to that line" in said) == bool(command)
        assert "orderly" not in said
        assert "backtrace" not in said
        assert not re.search("healthy: .*(process|progress)", said)


@given(data=st.binary(max_size=300), code=st.binary(max_size=8))
def test_any_bytes_give_an_exit_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, code: bytes
) -> None:
    """Whoever writes into the folder of an ended process is not believed."""
    folder = ProcessFolder(path=tmp_path_factory.mktemp("run"), pid=1, start_time=1)
    folder.exit_calls.write_bytes(data)
    folder.exit_code.write_bytes(code)
    exit_of(folder)
    assert exit_call(folder, 3) is None or data


def test_a_call_of_another_code_is_not_the_one(tmp_path: Path) -> None:
    """Of several the last one with the code counts, one of the program's own first."""
    folder = ProcessFolder(path=tmp_path, pid=1, start_time=1)
    own = {"func": "main", "file": "/job/train.py", "lineno": 7}
    library = {"func": "spawn_main", "file": "/usr/lib/python3.11/spawn.py", "lineno": 9}
    calls = [ExitCall(code=code) for code in (3, 4)]
    folder.exit_calls.write_bytes(encode({"calls": [
        {"code": 3, "frames": [library, own]}, {"code": 4, "frames": [own]},
        {"code": 3, "frames": [library]},
    ]}))  # fmt: skip
    found = exit_call(folder, 3)
    assert found is not None
    assert found.words == "sys.exit(3) at train.py:7 in main"
    assert exit_call(folder, 5) is None
    assert [call.words for call in calls] == ["sys.exit(3)", "sys.exit(4)"]
