"""A Python that has imported what is slow to import, and forks programs that need it.

    python tests/harness/warm_server.py torch|watched|commands|plain SOCKET

Rules of this file: runs in a process of its own, one thread, with the request socket as its
standard input. A forked program is what ``python SCRIPT`` would be, spared some imports:
its command line, environment, folder and streams are its own, also seen from outside.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import json
import mmap
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
import types
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_PR_SET_PDEATHSIG = 1
_STAT_FIELDS = {  # proc(5), counted from the field after the name, which is number 3
    "start_code": 26, "end_code": 27, "start_stack": 28, "start_data": 45,
    "end_data": 46, "start_brk": 47,
}  # fmt: skip

LONGEST = 1 << 20
"""More bytes than a request has: each is one message, which arrives whole or not at all."""
_areas: list[mmap.mmap] = []
"""Command lines of this process; the kernel reads them for as long as it lives."""
_ended: dict[int, int] = {}
"""How children have ended; who asked may have been stopped before the answer, and ask again."""
_shared: dict[str, types.ModuleType] = {}
"""What was imported before a fork; empty in the server itself."""
_LOOK_S = 0.05
_leaving: list[int] = []
"""Children that were killed here; one that somebody traces is a zombie until it is let go."""


class _MemoryMap(ctypes.Structure):
    """``struct prctl_mm_map`` of linux/prctl.h."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in (
                "start_code", "end_code", "start_data", "end_data", "start_brk", "brk",
                "start_stack", "arg_start", "arg_end", "env_start", "env_end", "auxv",
            )
        ),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    )  # fmt: skip


def _show_as(argv: list[str], env: dict[str, str]) -> None:
    """Have /proc show that command line and environment."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    pairs = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in env.items())
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # the kernel shows no shared memory
    area = mmap.mmap(-1, len(words) + len(pairs) + 1, flags=flags)
    area.write(words + pairs)
    _areas.append(area)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    stat = Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    layout = _MemoryMap(
        **{name: int(stat[number - 3]) for name, number in _STAT_FIELDS.items()},
        brk=libc.sbrk(0),
        arg_start=start,
        arg_end=start + len(words),
        env_start=start + len(words),
        env_end=start + len(words) + len(pairs),
        exe_fd=0xFFFFFFFF,
    )
    size = ctypes.c_ulong(ctypes.sizeof(layout))
    if libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(layout), size, 0):
        raise OSError(ctypes.get_errno(), "this kernel lets no process change its command line")


def _renew_streams() -> None:
    """Make the text streams anew, as Python does at its start, for they know their files."""
    for place, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(place, "w" if place else "r", closefd=False)
        raw.name = f"<{name}>"
        text = io.TextIOWrapper(
            raw if place else io.BufferedReader(raw),
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=raw.isatty(),
            write_through=True,  # as PYTHONUNBUFFERED has it
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def become(argv: list[str], env: dict[str, str], cwd: Path) -> Callable[[], object]:
    """Make this process one that was started so; returns what then is to be run."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    _show_as(argv, env)
    _renew_streams()
    sys.orig_argv[:] = argv
    flag, words = argv[1], argv[2:]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if flag == "-m":
        sys.path[0] = os.getcwd()
        sys.argv[:] = [words[0], *words[1:]]
        return lambda: runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    if flag == "-c":
        sys.path[0] = ""
        sys.argv[:] = ["-c", *words[1:]]
        code = compile(words[0], "<string>", "exec")
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(flag))
        sys.argv[:] = argv[1:]
        main.__file__ = flag
        code = compile(Path(flag).read_bytes(), flag, "exec")
    return lambda: exec(code, main.__dict__)


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """The next request and the streams that come with it; None when nobody asks any more."""
    try:
        message, streams, _, _ = socket.recv_fds(client, LONGEST, 3)
    except ConnectionResetError:  # it was killed before it read an answer
        return None
    return (json.loads(message), streams) if message else None


def _reap(pid: int) -> int | None:
    """How a child has ended, as subprocess counts it; None as long as somebody traces it."""
    if pid not in _ended:
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            return None
        _ended[pid] = os.waitstatus_to_exitcode(status)
    return _ended[pid]


def _serve(server: socket.socket, door: socket.socket) -> Callable[[], object] | None:
    """Answer requests; returns in a forked child, with what it is to run.

    Args:
        server: Whoever started this process; it ends with it.
        door: Where shells of the tests come in.
    """
    begun: dict[socket.socket, list[int]] = {server: []}
    while True:
        _leaving[:] = [pid for pid in _leaving if _reap(pid) is None]
        for ready in select.select([door, *begun], [], [], _LOOK_S if _leaving else None)[0]:
            if ready is door:
                begun[door.accept()[0]] = []
            elif (received := _receive(ready)) is not None:
                pid = _answer(ready, *received)
                if pid == 0:
                    for one in (door, *begun):
                        one.close()
                    return _become_asked(received[0])
                if pid is not None:
                    begun[ready].append(pid)
            elif ready is server:
                return None
            else:
                _end_left(begun.pop(ready))
                ready.close()


def _end_left(pids: list[int]) -> None:
    """End what a shell has begun and not seen end: it was killed, and with it what it ran."""
    for pid in pids:
        if pid not in _ended:
            os.kill(pid, signal.SIGKILL)
            _leaving.append(pid)


def _answer(client: socket.socket, request: dict[str, Any], streams: list[int]) -> int | None:
    """Do what is asked; returns the process that was begun, 0 in it, and None where none was."""
    answer: dict[str, Any] = {"id": request["id"]}
    if "reap" in request:
        answer["code"] = _reap(request["reap"])
    else:
        sys.stdout.flush()
        server = os.getpid()
        answer["pid"] = os.fork()
        if not answer["pid"]:
            _end_with_parent(server)
            for place, descriptor in enumerate(streams):
                os.dup2(descriptor, place)
        _ended.pop(answer["pid"], None)
    for descriptor in streams:
        os.close(descriptor)
    if answer.get("pid") == 0:
        return 0
    try:
        client.send(json.dumps(answer).encode())
    except OSError:  # it was killed meanwhile: nobody knows of the process
        if "pid" in answer:
            _end_left([answer["pid"]])
    return answer.get("pid")


def _become_asked(request: dict[str, Any]) -> Callable[[], object]:
    """Make this process the one that is asked for."""
    if request["session"]:
        os.setsid()
    _spare_what_is_shared()
    return become(request["argv"], request["env"], Path(request["cwd"]))


def _spare_what_is_shared() -> None:
    """Have this process, as it ends, leave alone the libraries that its parent has imported.

    The kernel would copy all of torch for it to be taken apart: a quarter of a second of a core.
    What the program and the agent have left is taken apart as ever.
    """
    ours = ("__main__", "builtins", "sys", "probing")
    _shared.update(
        (name, module) for name, module in sys.modules.items() if name.partition(".")[0] not in ours
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_shared))
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # comes before what libraries do in C; is given the exit code


def _forget_shared() -> None:
    """Runs behind all that is to be done at the exit, since it is registered before it."""
    for name, module in _shared.items():
        if sys.modules.get(name) is module:
            del sys.modules[name]


def _end_with_parent(parent: int) -> None:
    """Have the kernel end this process with its parent: no program outlives the tests."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # which has ended just before
        os.kill(os.getpid(), signal.SIGKILL)


def _warm_up(kind: str) -> None:
    """Import what the programs of a kind have in common and what takes long."""
    if kind == "commands":
        import numpy as np  # noqa: F401
        import pyarrow as pa  # noqa: F401
        import rich.console  # noqa: F401

        from probing.cli import group, main  # noqa: F401

        # DuckDB 1 starts a thread as it is imported, which a fork of this process would miss.
        if int(version("duckdb").partition(".")[0]) > 1:
            import duckdb  # noqa: F401

            _import_all_of("probing.cli")
            _import_all_of("probing.diagnosis")
    if kind in {"commands", "plain"}:
        return
    import torch
    import torch._dynamo  # the first step of any optimizer does
    import torch.distributed
    import torch.utils.data  # noqa: F401

    if kind == "watched":
        _import_all_of("probing.agent")


def _import_all_of(package: str) -> None:
    """Import a package and all that is in it."""
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, f"{package}."):
        importlib.import_module(module.name)


def _spare_the_forks() -> None:
    """Have the garbage collector pass over what is here: it writes to all that it looks at.

    A fork would have to copy it, as it ends at the latest: a second of a core where torch is there.
    """
    gc.collect()
    gc.freeze()


def _start() -> Callable[[], object] | None:
    """Warm up and serve.

    It ends with its socket, not with its parent: to the kernel that is the thread that started it.
    """
    atexit.register(_forget_shared)  # before any library registers something
    server = socket.socket(fileno=os.dup(0))
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(sys.argv[2])
    door.listen()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    _warm_up(sys.argv[1])
    runpy.run_path(str(Path(__file__).with_name("counting.py")))["count_without_lock"]()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    others = [name for name in names if name != "jemalloc_bg_thd"]  # pyarrow's, made for forks
    assert len(others) == 1, f"threads that a fork has not: {names}"
    _spare_the_forks()
    server.send(b"warm")
    return _serve(server, door)


if __name__ == "__main__":
    program = _start()
    if program is not None:
        program()
