"""Who a process is.

Rules of this file: what the agent must know of the wire at its start, and no more; the rest is in
`probing.messages.common` and is loaded with the server.
"""

from __future__ import annotations

from .frozen import dataclass

FAILED_START = "the agent did not start"
"""How the problem begins that kept the agent from its start."""
TAKEN_OUT = "its agent was taken out of it"
"""The problem that nothing tells of the process since."""
_KEPT_AS_TEXT = ("host", "executable", "job")
"""What goes into files and labels as UTF-8; paths that are opened stay as they are."""


@dataclass(frozen=True)
class Card:
    """Who a process is; the file ``card.json`` of its run folder and the answer to ``status``.

    What has no UTF-8, as a job's name of another encoding, has `?` for it.

    Attributes:
        start_time: Clock ticks after boot at which the process started.
        pid_namespace: Inode of the pid namespace that `pid` belongs to.
        listen: Its TCP listener: ``host:port`` or ``https://host:port``.
        problems: What the agent could not do, one sentence each.
        job: What its job is called, see `probing.cluster.launchers`.
        attempt: How often the launcher had restarted the job.
        parent: The process that has started it.
        error_file: Where torchrun has it write the exception that ends it.
        launcher_log: The file of its parent's standard error, where it is a rank.
        fingerprint: SHA-256 of its TCP listener's certificate.
        has_trained: Whether it has itself been in torch's default group, or ended a step.
        is_recording: Whether its recorded tables may grow; else the setting `recording` is off.
    """

    pid: int
    start_time: int
    boot_id: str
    pid_namespace: int
    uid: int
    host: str
    command: tuple[str, ...]
    executable: str
    python: str
    version: str
    started_ns: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    listen: str | None = None
    problems: tuple[str, ...] = ()
    job: str | None = None
    attempt: int = 0
    fingerprint: str | None = None
    error_file: str | None = None
    launcher_log: str | None = None
    parent: int | None = None
    has_trained: bool = False
    is_recording: bool = True

    def __post_init__(self) -> None:
        for name in _KEPT_AS_TEXT:
            text = getattr(self, name)
            if text is not None and not text.isascii():
                object.__setattr__(self, name, text.encode("utf-8", "replace").decode())


@dataclass(frozen=True)
class Pong:
    """The answer to a ping."""

    pid: int
