"""A Ray cluster of one node on this machine, in an environment of its own beside the main one.

Rules of this file: no file outside of its folder, no process that outlives it; `ray stop`, which
ends whatever Ray runs on the machine, is never called.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sysconfig
from pathlib import Path

from probing.rundir.folders import RunDirectory
from probing.rundir.node_card import read_node
from tests.harness.jobs import descendants
from tests.harness.targets import DEADLINE_S, ROOT, clean_env, wait_until

PLACE = ROOT / ".venv-ray"
"""Where `scripts/ray` has installed it."""


def is_installed() -> bool:
    """Whether it is there."""
    return (PLACE / "bin" / "ray").exists()


class RayCluster:
    """The cluster, from its start until it is stopped.

    Attributes:
        folder: Where its jobs run; a short path, for Ray's sockets lie in it.
        home: The run directory of its jobs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "run"
        self.home.mkdir(mode=0o700)
        programs = folder / "bin"
        programs.mkdir()
        # What `pip install 'probing-agent[cli]'` into Ray's environment would give.
        sites = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        (next(PLACE.glob("lib/python3*/site-packages")) / "zz_main.pth").write_text(sites)
        command = programs / "probing"
        command.write_text(f'#!/bin/sh\nexec {PLACE}/bin/python -m probing "$@"\n')
        command.chmod(0o755)
        free = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self._head, self._dashboard = (one.getsockname()[1] for one in free)
        for one in free:
            one.close()
        self.env = clean_env(
            self.home,
            PATH=f"{programs}:{PLACE}/bin:{os.environ['PATH']}",
            PYTHONPATH=f"{ROOT}",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_AUTH_MODE="disabled",  # whoever runs the tests may have a token
        )
        self._outside = {
            "RAY_ADDRESS": f"127.0.0.1:{self._head}",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{self._dashboard}",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start its head, and wait until it takes jobs."""
        words = f"start --head --block --node-ip-address=127.0.0.1 --port={self._head} --num-cpus=4"
        words += f" --dashboard-port={self._dashboard} --object-store-memory=80000000"
        argv = [f"{PLACE}/bin/ray", *words.split(), f"--temp-dir={self.folder}/ray"]
        with (self.folder / "head.log").open("wb") as log:
            self._process = subprocess.Popen(
                argv, cwd=self.folder, env=self.env, stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(self._takes_jobs, "a cluster that takes jobs", 3 * DEADLINE_S)

    def run(self, line: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell as somebody on the machine of its head."""
        return subprocess.run(
            ["bash", "-ec", line],
            cwd=self.folder,
            env={**self.env, **self._outside, **extra},
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )

    def _takes_jobs(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "head.log").read_text()
        try:
            return self.run("ray job list").returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def stop(self) -> None:
        """End all that it has started."""
        if self._process is None:
            return
        pids, node = descendants(self._process.pid), read_node(RunDirectory(self.home))
        self._process.kill()
        self._process.wait(DEADLINE_S)
        for pid in (*pids, *([node.pid] if node else [])):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
