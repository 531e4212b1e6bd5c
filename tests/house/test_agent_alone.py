"""A training whose environment holds the agent and nothing of the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from probing.errors import MissingLibrary
from probing.errors.querying import CLI_PACKAGES
from tests.harness.targets import ROOT, Target, clean_env

WAY_OUT = "-m pip install 'probing-agent[cli]'` adds SQL and the commands."


def needs_of(name: str) -> set[str]:
    """A distribution and all that it requires, without extras."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another Python or platform
        if name not in found:
            found.add(name)
            wanted = map(Requirement, texts)
            waiting += [r.name for r in wanted if r.marker is None or r.marker.evaluate()]
    return found


def environment(folder: Path, *names: str) -> str:
    """A virtual environment with these distributions of this one and their needs; its Python."""
    done = subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], timeout=120)
    assert done.returncode == 0
    site_packages = next(folder.glob("lib/python*/site-packages"))
    for name in set().union(*map(needs_of, names)):
        held = metadata.distribution(name)
        for top in {file.parts[0] for file in held.files or []} - {"..", "__pycache__"}:
            if not (site_packages / top).exists():
                (site_packages / top).symlink_to(str(held.locate_file(top)))
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment that has what `pip install probing-agent` brings, no torch."""
    return environment(tmp_path_factory.mktemp("light") / "venv", "aiohttp")


def say(python: str, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What a Python says."""
    return subprocess.run(
        [python, *words], env=clean_env(home), capture_output=True, text=True, timeout=120
    )


@pytest.mark.anypython
def test_the_command_says_what_is_missing(light: str, tmp_path: Path) -> None:
    """Each command is one sentence there, with the line that installs it."""
    for words in ([], ["--help"], ["4242", "query", "SELECT 1"]):
        done = say(light, tmp_path, "-m", "probing", *words)
        assert (done.returncode, done.stdout) == (1, "")
        lines = done.stderr.splitlines()
        assert lines[0].startswith("error: click is not installed in "), done.stderr
        assert f"`{light} {WAY_OUT}" in lines[1]
        assert len(lines) == 3


@pytest.mark.anypython
def test_python_says_what_is_missing(light: str, tmp_path: Path) -> None:
    """Who asks from there is told before anything is asked; what a script calls is there."""
    code = """
import probing
probing.step
for ask in (lambda: probing.connect(1), lambda: probing.connect_many(["all"])):
    try:
        ask()
    except probing.ProbingError as error:
        print(error.code, error, error.help)
"""
    done = say(light, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(MissingLibrary.code) and WAY_OUT in line for line in lines)


@pytest.mark.anypython
def test_its_agent_answers(light: str, program: Callable[..., Target]) -> None:
    """Its record and its agent answer commands from elsewhere; only SQL by TCP is refused."""
    target = program("idle", python=light, PROBING="all", PROBING_LISTEN="127.0.0.1:0")
    target.wait_for_agent()
    pid = str(target.pid)
    assert target.run(pid, "eval", "--now", "1 + 1").stdout.startswith("2")
    done = target.run(pid, "query", "SELECT thread_name FROM threads WHERE is_main", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    (listed,) = json.loads(target.run("list", "--json").stdout)
    done = target.run(listed["listen"], "query", "SELECT 1")
    assert done.returncode == MissingLibrary.exit_code
    assert WAY_OUT in done.stderr
    assert "`query` by its pid needs none of it there." in done.stderr


@pytest.mark.torch
@pytest.mark.nightly
def test_a_training_is_recorded_there(tmp_path: Path) -> None:
    """Every command answers for a training without numpy, pyarrow and duckdb."""
    python = environment(tmp_path / "venv", "aiohttp", "torch")
    code = (
        f"import importlib.util as u; print([n for n in {sorted(CLI_PACKAGES)} if u.find_spec(n)])"
    )
    assert say(python, tmp_path, "-c", code).stdout == "[]\n"
    small = ["--layers", "2", "--dim", "64", "--context", "32", "--pause", "0.1"]
    argv = [python, "-m", "probing._run", str(ROOT / "examples" / "train_gpt.py"), *small]
    target = Target(argv, tmp_path / "home", tmp_path)
    try:
        target.wait_for_step(10)
        for words in ("", "doctor", "hang", "backtrace", "memory", "summary", "dataloaders",
                      "gradients", "leak --steps 2", "profile --steps 1", "status", "tables",
                      "query @slowest-modules", "act list", "fit"):  # fmt: skip
            done = target.run(str(target.pid), *words.split())
            assert done.returncode == 0, (words, done.stderr)
            assert done.stdout
    finally:
        target.reap()
