"""Processes in what Docker makes of a container: its namespaces, capabilities, init and /dev/shm.

There is no Docker here. `unshare`, `setpriv` and a mount make the same, and `nsenter` stands for
`docker exec`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from probing.linux import process
from probing.ring.space import limit_rings
from tests.harness.targets import DEADLINE_S, ROOT, Target, clean_env, wait_until

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_DEFAULT = (
    "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "net_bind_service", "net_raw", "sys_chroot", "mknod", "audit_write", "setfcap",
)  # fmt: skip
"""The capabilities of a container that was given none."""
_MADE = ("unshare", "--pid", "--mount", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child")
_ENTERED = ("--pid", "--mount", "--ipc", "--uts")
_OWN_SHM = 'mount -t tmpfs -o size=64m,mode=1777 none /dev/shm && exec "$@"'
_INIT = '"$@" & wait'
"""What `--init` puts before the program: a pid 1 that only waits for it."""


def _why_not() -> str:
    """Why no such container can be made here; empty where it can."""
    if os.getuid():
        return "only root makes namespaces without one of users"
    for tool in ("unshare", "nsenter", "setpriv"):
        if shutil.which(tool) is None:
            return f"there is no {tool}"
    done = subprocess.run([*_MADE, *_least(), "true"], capture_output=True, text=True)
    return done.stderr.strip()


def _least(*added: str) -> tuple[str, ...]:
    """What leaves a command the capabilities of a container, and those that were added."""
    kept = ",".join(f"+{name}" for name in (*_DEFAULT, *added))
    return "setpriv", "--inh-caps", "-all", "--bounding-set", f"-all,{kept}"


pytestmark = [pytest.mark.anypython, pytest.mark.skipif(bool(_why_not()), reason=_why_not())]


class Container:
    """One that runs `idle.py`.

    Attributes:
        target: The command that has started it.
        caps: What was added to its capabilities.
    """

    def __init__(self, folder: Path, *caps: str, with_agent: bool, init: bool = True) -> None:
        self.caps = caps
        script = str(ROOT / "tests" / "programs" / "idle.py")
        agent = ("-m", "probing._run") if with_agent else ()
        first = ("sh", "-c", _INIT, "sh") if init else ()
        argv = [*_MADE, "sh", "-c", _OWN_SHM, "sh", *_least(*caps), *first]
        argv += [sys.executable, *agent, script]
        (folder / "home").mkdir(mode=0o700)
        on = {"PROBING": "all"} if with_agent else {}
        self.target = Target(argv, folder / "home", folder, PROBING_HOME="", **on)
        self.target.wait_for_output("ready")

    @property
    def pid(self) -> int:
        """Its pid 1, as it is called here."""
        return _children(self.target.pid)[0]

    @property
    def script(self) -> str:
        """The pid of its script, as it is called in it."""
        (pid,) = _children(self.pid)
        return process.status(pid)["NSpid"].split()[-1]

    def run(self, *words: str) -> CompletedProcess[str]:
        """A command in it, by `docker exec`."""
        enter = ("nsenter", "--target", str(self.pid), *_ENTERED, "--", *_least(*self.caps))
        return subprocess.run(
            [*enter, sys.executable, "-m", "probing", *words],
            env=clean_env(self.target.home, PROBING_HOME=""),
            capture_output=True, text=True, timeout=DEADLINE_S, check=False, cwd="/",
        )  # fmt: skip


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Callable[..., Container]]:
    """Starts one."""
    started: list[Container] = []

    def start(*caps: str, with_agent: bool = True, init: bool = True) -> Container:
        started.append(Container(tmp_path, *caps, with_agent=with_agent, init=init))
        return started[-1]

    yield start
    for one in started:
        one.target.reap()


def test_the_commands_of_the_page_work(container: Callable[..., Container]) -> None:
    """Those without a capability: the process is listed, and asked by its name."""
    started = container()
    kept = {process.status(pid)["CapBnd"] for pid in (started.pid, *_children(started.pid))}
    assert len(kept) == 1
    assert int(kept.pop(), 16) >> 19 & 1 == 0  # SYS_PTRACE
    listed = wait_until(
        lambda: done if "idle.py" in (done := started.run("list")).stdout else None, "its agent"
    )
    assert listed.returncode == 0, listed.stderr
    shown = started.run("idle.py", "backtrace")
    assert shown.returncode == 0, shown.stderr
    assert "in sleeper" in shown.stdout


@pytest.mark.parametrize("caps", [(), ("sys_ptrace",)], ids=["default", "--cap-add SYS_PTRACE"])
def test_attaching_needs_the_capability_where_yama_does(
    caps: tuple[str, ...], container: Callable[..., Container]
) -> None:
    """One user's processes with equal capabilities may look into each other without Yama."""
    started = container(*caps, with_agent=False)
    yama = Path("/proc/sys/kernel/yama/ptrace_scope")
    is_free = bool(caps) or not yama.exists() or yama.read_text().strip() == "0"
    pid = started.script
    done = started.run("attach", pid)
    if not is_free:
        assert (done.returncode, "--cap-add SYS_PTRACE" in done.stderr) == (4, True), done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert started.run(pid, "eval", "6 * 7").stdout.strip() == "42"


def test_the_usual_shm_holds_an_eighth_of_the_rows() -> None:
    """64 MB, of which a tenth is taken; a gigabyte is enough for all."""
    try:
        assert "holds 1/8 of its rows" in (limit_rings(0, 64 << 20) or "")
        assert limit_rings(0, 1 << 30) is None
    finally:
        limit_rings(0)


def test_pid_1_is_left_by_an_agent_what_it_is(container: Callable[..., Container]) -> None:
    """Without `--init` the script ignores a SIGTERM that it does not handle, as if alone."""
    started = container(init=False)
    wait_until(lambda: "idle.py" in started.run("list").stdout, "its agent")
    os.kill(started.pid, 15)
    shown = started.run("1", "eval", "6 * 7")
    assert (shown.returncode, shown.stdout.strip()) == (0, "42"), shown.stderr
    assert process.state(started.pid) == "S"
