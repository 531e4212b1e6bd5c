"""`probing.pyz`: one file, run by a Python with nothing installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scripts.pyz import MACHINE, OWN, START, write
from tests.harness.packages import clean_env, run
from tests.harness.targets import DEADLINE_S, ROOT, Target, start_training, stop

ERRORS = ROOT / "probing" / "errors"
Ask = Callable[..., subprocess.CompletedProcess[str]]

PROBE = b"""
import os, sys
def main():
    print(sys.argv[1:], os.environ["PYTHONPATH"] == os.path.dirname(os.path.dirname(__file__)))
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file with next to nothing in it."""
    made = tmp_path / "small.pyz"
    files = {
        ("any", "probing/__main__.py"): (PROBE, 0o644),
        ("any", "bin/tool"): (b"", 0o755),
        (OWN, "own.txt"): (b"", 0o644),
        ("cp399_other", "other.txt"): (b"", 0o644),
    }
    write(files, "1.0", made)
    return made


def asked(made: Path, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one by this Python."""
    argv = [sys.executable, "-S", str(made), *words]
    env = clean_env() | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.mark.anypython
def test_it_unpacks_once_and_only_what_fits(small: Path, tmp_path: Path) -> None:
    """Into a folder of the user's alone; programs that commands start find it, too."""
    first = asked(small, tmp_path / "cache", "7", "backtrace")
    assert (first.returncode, first.stdout) == (0, "['7', 'backtrace'] True\n"), first.stderr
    (folder,) = (tmp_path / "cache" / "probing").iterdir()
    assert first.stderr.splitlines() == [f"note: unpacking into {folder}, once."]
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {name for name in names if "__pycache__" not in name} == {
        "probing/__main__.py", "bin/tool", "own.txt"
    }  # fmt: skip
    assert (folder / "bin" / "tool").stat().st_mode & 0o111
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert asked(small, tmp_path / "cache").stderr == ""


@pytest.mark.anypython
def test_a_folder_that_others_write_to_is_not_used(small: Path, tmp_path: Path) -> None:
    """The next one is; where there is none, that is said."""
    cache = tmp_path / "cache"
    (cache / "probing").mkdir(parents=True)
    (cache / "probing").chmod(0o777)
    elsewhere = asked(small, cache)
    assert elsewhere.returncode == 0
    assert f"{cache}/probing-{os.getuid()}/" in elsewhere.stderr
    (cache / f"probing-{os.getuid()}").chmod(0o777)
    refused = asked(small, cache)
    assert refused.returncode == 1
    assert refused.stderr.endswith("; set XDG_CACHE_HOME to one.\n")
    assert len(refused.stderr.splitlines()) == 1


LACKING = b"""
from probing.errors import MissingLibrary
from probing.errors.querying import told_of
def main():
    for error in (ModuleNotFoundError("", name="duckdb"), MissingLibrary("numpy")):
        print(told_of(error).message, told_of(error).help)
"""


@pytest.mark.anypython
def test_another_python_is_told_which_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever library is asked for, and nobody is told to install one."""
    monkeypatch.setattr("scripts.pyz.PARTS", ("any", f"cp399_{MACHINE}"))
    names = ["units.py", *[f"errors/{path.name}" for path in ERRORS.glob("*.py")]]
    files = {
        ("any", f"probing/{name}"): ((ERRORS.parent / name).read_bytes(), 0o644) for name in names
    }
    files["any", "probing/__main__.py"] = (LACKING, 0o644)
    files[f"cp399_{MACHINE}", "own.txt"] = (b"", 0o644)
    write(files, "1.0", tmp_path / "other.pyz")
    told = asked(tmp_path / "other.pyz", tmp_path / "cache")
    assert "note: other.pyz is for Python 3.99: under this" in told.stderr
    assert told.returncode == 0, told.stderr
    first, second = told.stdout.splitlines()
    assert first == second
    assert first.endswith(". Run it with Python 3.99.")
    assert "pip install" not in first


@pytest.mark.anypython
def test_an_old_python_is_told_so() -> None:
    """What runs first has no syntax that an old one cannot read."""
    compile(START.read_bytes(), "start", "exec", dont_inherit=True)
    import ast

    ast.parse(START.read_text(), feature_version=(3, 7))


@pytest.fixture(scope="module")
def pyz(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real one."""
    made = tmp_path_factory.mktemp("pyz") / "probing.pyz"
    run(sys.executable, ROOT / "scripts" / "pyz.py", wheel, made, cwd=ROOT)
    return made


@pytest.fixture(scope="module")
def ask(pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Ask by it, with a Python beside which nothing is installed."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", cwd=ROOT)
    env = clean_env() | {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "120"}
    argv = [str(folder / "venv" / "bin" / "python"), str(pyz)]

    def asks(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*argv, *words], env=env | {"PROBING_HOME": str(home)}, cwd=folder,
            capture_output=True, text=True, timeout=DEADLINE_S,
        )  # fmt: skip

    return asks


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training for these tests alone."""
    cwd = tmp_path_factory.mktemp("trained")
    target = start_training(home=cwd / "home", cwd=cwd)
    yield target
    target.reap()


@pytest.mark.nightly
@pytest.mark.torch
def test_it_asks_the_living_the_hung_and_the_dead(ask: Ask, trained: Target) -> None:
    """`backtrace`, `hang` and `query` of a training in each state."""
    pid, home = str(trained.pid), trained.home
    expected = {"runs": "no hang", "stopped": "kill -CONT", "ended": "ENDED"}
    for state, verdict in expected.items():
        if state == "stopped":
            stop(trained.pid)
        elif state == "ended":
            trained.kill()
        stack = ask(home, pid, "backtrace")
        assert stack.returncode == 0, stack.stderr
        assert ("Module " if state == "ended" else "train_gpt.py") in stack.stdout, state
        hang = ask(home, pid, "hang")
        assert verdict in hang.stdout, (state, hang.stdout, hang.stderr)
        rows = ask(home, pid, "query", "--format", "csv", "SELECT max(step) > 1 FROM steps")
        assert rows.stdout.splitlines()[1:] == ["true"], (state, rows.stderr)


@pytest.mark.nightly
def test_it_looks_into_a_process_without_an_agent(ask: Ask, tmp_path: Path) -> None:
    """One that never heard of probing and waits for a lock that it holds itself."""
    script = tmp_path / "locked.py"
    script.write_text(
        "import threading\n"
        "lock = threading.Lock()\n"
        "def waits():\n"
        "    lock.acquire()\n"
        "    print('ready', flush=True)\n"
        "    lock.acquire()\n"
        "waits()\n"
    )
    target = Target([sys.executable, str(script)], tmp_path / "home", tmp_path)
    try:
        target.wait_for_output("ready")
        stack = ask(target.home, str(target.pid), "backtrace")
        assert "taken by py-spy from outside" in stack.stdout, stack.stderr
        assert "locked.py" in stack.stdout
        assert ", in waits" in stack.stdout
        hang = ask(target.home, str(target.pid), "hang")
        assert "waiting for a lock, at locked.py:6 in waits" in hang.stdout
    finally:
        target.reap()


@pytest.mark.nightly
def test_the_same_files_make_the_same_file(pyz: Path, wheel: Path, tmp_path: Path) -> None:
    """To the byte."""
    run(sys.executable, ROOT / "scripts" / "pyz.py", wheel, tmp_path / "again.pyz", cwd=ROOT)
    assert (tmp_path / "again.pyz").read_bytes() == pyz.read_bytes()
