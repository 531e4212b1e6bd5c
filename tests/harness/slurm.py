"""A SLURM cluster of one node on this machine, by the daemons that Debian's `slurm-wlm` installs.

Rules of this file: no file outside of its folder, no daemon that outlives it, free ports; whoever
runs the tests is its administrator and its only user, so nobody needs to prove who they are.
"""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

from tests.harness.targets import DEADLINE_S, clean_env, wait_until

PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "squeue", "sinfo", "scontrol")
NODE = "localhost"
_CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
MpiDefault=none
TaskProlog={folder}/task-prolog
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes={node} Default=YES State=UP
"""


def is_installed() -> bool:
    """Whether all of its programs are here, and this user may be its administrator."""
    return all(map(shutil.which, PROGRAMS)) and os.geteuid() == 0


class Slurm:
    """The cluster, from its start until it is stopped.

    Attributes:
        folder: All that it writes, and where its jobs run.
        home: The run directory of its jobs.
    """

    def __init__(self, folder: Path, **extra: str) -> None:
        self.folder, self.home = folder, folder / "run"
        for name in ("state", "spool"):
            (folder / name).mkdir()
        self.say_before_tasks("")
        ports = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        controller, daemon = (port.getsockname()[1] for port in ports)
        for port in ports:
            port.close()
        text = _CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            node=NODE,
            controller=controller,
            daemon=daemon,
            user=getpass.getuser(),
            folder=folder,
        )
        (folder / "slurm.conf").write_text(text)
        self.env = clean_env(self.home, SLURM_CONF=str(folder / "slurm.conf"), **extra)
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start its daemons, and wait until the node takes jobs."""
        for argv in (["slurmctld", "-D"], ["slurmd", "-D", "-N", NODE]):
            with (self.folder / f"{argv[0]}.log").open("wb") as log:
                self._daemons.append(
                    subprocess.Popen(argv, env=self.env, stdout=log, stderr=subprocess.STDOUT)
                )
        wait_until(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T").stdout, "an idle node")

    def say_before_tasks(self, text: str) -> None:
        """Have the administrator's task prolog say this."""
        prolog = self.folder / "task-prolog"
        prolog.write_text(f"#!/bin/sh\n{text}\n")
        prolog.chmod(0o755)

    def run(self, *argv: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, or another that finds them, in its folder."""
        return subprocess.run(
            argv,
            cwd=self.folder,
            env={**self.env, **extra},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def submit(self, *words: str) -> str:
        """Submit a job by `sbatch`; returns its number."""
        done = self.run("sbatch", *words)
        found = re.search(r"Submitted batch job (\d+)", done.stdout)
        assert found is not None, done.stderr
        return found[1]

    def state(self, job: str) -> str:
        """How a job is, and what its script exited with: `COMPLETED 0:0`."""
        text = self.run("scontrol", "show", "job", job).stdout
        found = dict(re.findall(r"(JobState|ExitCode)=(\S+)", text))
        return " ".join(found.get(name, "") for name in ("JobState", "ExitCode"))

    def output(self, job: str) -> str:
        """What a job has printed."""
        path = self.folder / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def stop(self) -> None:
        """End its jobs, then its daemons."""
        self.run("scancel", "--user", getpass.getuser())
        try:
            wait_until(lambda: not self.run("squeue", "-h").stdout.strip(), "the end of all jobs")
        finally:
            for daemon in reversed(self._daemons):
                daemon.terminate()
            for daemon in self._daemons:
                daemon.wait(DEADLINE_S)
