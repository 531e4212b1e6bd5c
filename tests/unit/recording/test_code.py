"""What is told of the code that a process runs, from files made by hand."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from probing.agent.live.code import Code

pytestmark = pytest.mark.anypython

COMMIT = "0123456789" * 4
EVER = 1 << 62


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that is taken for ``__main__``, in a folder of its repository."""
    path = tmp_path / "jobs" / "train.py"
    path.parent.mkdir()
    path.write_text("print('hello')\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    return path


def rows(since_ns: int = EVER) -> dict[str, str | None]:
    """What is told of a process that has started at some time."""
    return dict(Code(since_ns).rows())


def test_a_script_outside_of_any_repository(script: Path) -> None:
    """It is told by the name that git gives to its content, below its own folder."""
    content = b"print('hello')\n"
    named = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    assert rows() == {"root": str(script.parent), "train.py": named}


def test_a_file_that_was_changed_since_is_not_known(script: Path) -> None:
    """What it held as it was loaded cannot be told from the file."""
    assert rows(since_ns=1)["train.py"] is None


def test_a_module_beside_the_script_is_told_and_a_library_is_not(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules below the folder count, those of an environment in it do not."""
    for name, place in (("mine", "mine.py"), ("other", "venv/site-packages/other.py")):
        path = script.parent / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n")
        module = type(sys)(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
    assert set(rows()) == {"root", "train.py", "mine.py"}


def test_a_module_that_loads_others_when_asked_is_not_asked(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in `sys.modules` may do anything for an attribute that it has not."""

    class Lazy:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

    monkeypatch.setitem(sys.modules, "lazy", Lazy())
    assert set(rows()) == {"root", "train.py"}


@pytest.mark.parametrize("way", ["loose", "packed", "detached", "worktree"])
def test_the_commit_is_read_from_its_files(script: Path, way: str) -> None:
    """A branch may be a file of its own or a line of one, and a worktree's folder elsewhere."""
    top = script.parent.parent
    git = top / "elsewhere" if way == "worktree" else top / ".git"
    git.mkdir()
    common = git
    if way == "worktree":
        (top / ".git").write_text("gitdir: elsewhere\n")
        (git / "commondir").write_text("../common\n")
        common = top / "common"
        common.mkdir()
    (git / "HEAD").write_text(f"{COMMIT}\n" if way == "detached" else "ref: refs/heads/main\n")
    if way == "packed":
        (git / "packed-refs").write_text(
            f"# pack-refs\n{COMMIT[::-1]} refs/x\n{COMMIT} refs/heads/main\n"
        )
    elif way != "detached":
        (common / "refs" / "heads").mkdir(parents=True)
        (common / "refs" / "heads" / "main").write_text(f"{COMMIT}\n")
    told = rows()
    assert told["git commit"] == COMMIT
    assert told.get("git branch") == (None if way == "detached" else "main")
    assert told["root"] == str(top)
    assert os.path.join("jobs", "train.py") in told


def test_a_repository_without_a_commit_tells_its_branch_alone(script: Path) -> None:
    """What is damaged or not there yet is not made up."""
    git = script.parent / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert "git commit" not in rows()
