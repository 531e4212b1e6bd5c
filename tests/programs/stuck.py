"""Prints `ready` and is then stuck in the way its argument names; `-h` lists the ways.

Needs neither torch nor a compiler: every native state is reached through ctypes, where `KEEPING`
keeps the interpreter lock (GIL) for the length of a call and `FREEING` gives it up. A call that
should last for ever and comes back all the same prints `returned`. Its children end with it, and
it ends itself after ten minutes.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import itertools
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable

FREEING = ctypes.CDLL(None)
KEEPING = ctypes.PyDLL(None)
FOREVER_S = 10**6
LIFETIME_S = 600
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
CLONE_VFORK = 0x4000


def busy() -> None:
    """Runs Python code."""
    x = 0
    while True:
        x = (x * 3 + 1) & 0xFFFF


def sleep() -> None:
    """In time.sleep."""
    time.sleep(FOREVER_S)


def lock() -> None:
    """Two threads take two locks in opposite order."""
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other() -> None:
        with second:
            both.wait()
            first.acquire()

    threading.Thread(target=other, name="second-then-first", daemon=True).start()
    with first:
        both.wait()
        second.acquire()


def event() -> None:
    """Waits for an event that nobody sets."""
    threading.Event().wait()


def condition() -> None:
    """Waits for a condition that nobody notifies."""
    ready = threading.Condition()
    with ready:
        ready.wait()


def semaphore() -> None:
    """Waits for a semaphore that nobody releases."""
    threading.Semaphore(0).acquire()


def barrier() -> None:
    """Waits at a barrier that nobody else comes to."""
    threading.Barrier(2).wait()


def queue() -> None:
    """Takes from an empty queue."""
    import queue

    queue.Queue[int]().get()


def simple_queue() -> None:
    """Takes from an empty queue that is written in C."""
    import queue

    queue.SimpleQueue[int]().get()


def join() -> None:
    """Waits for the end of a thread that does not end."""
    thread = threading.Thread(target=sleep, name="endless", daemon=True)
    thread.start()
    thread.join()


def future() -> None:
    """Waits for a result that never comes."""
    from concurrent.futures import Future

    Future[int]().result()


def socket() -> None:
    """Receives from a peer that is silent."""
    import socket

    ours, theirs = socket.socketpair()
    ours.recv(theirs.fileno())


def accept() -> None:
    """Waits for a connection that nobody makes."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.accept()


def pipe() -> None:
    """Reads from a pipe that nobody writes to."""
    reader, _writer = os.pipe()
    os.read(reader, 1)


def file_lock() -> None:
    """Takes a file lock that is taken."""
    import fcntl
    import tempfile

    with tempfile.NamedTemporaryFile() as first, open(first.name, "rb") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def record_lock() -> None:
    """Takes a lock of part of a file that another process has."""
    import fcntl

    file, (reader, writer) = os.memfd_create("locked"), os.pipe()
    warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside a thread of the agent's
    if os.fork() == 0:
        _end_with_parent()
        fcntl.lockf(file, fcntl.LOCK_EX)
        os.write(writer, b"x")
        time.sleep(FOREVER_S)
    os.read(reader, 1)
    fcntl.lockf(file, fcntl.LOCK_EX)


def open_fifo() -> None:
    """Opens a pipe that nobody writes to."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(f"{folder}/fifo")
        fifo = os.open(f"{folder}/fifo", os.O_PATH)
    os.open(f"/proc/self/fd/{fifo}", os.O_RDONLY)


def select() -> None:
    """Waits in select for a pipe that nobody writes to."""
    import select

    reader, _writer = os.pipe()
    select.select([reader], [], [])


def subprocess() -> None:
    """Waits for a child that does not end."""
    import subprocess

    subprocess.run(
        ["sleep", str(FOREVER_S)],
        preexec_fn=_end_with_parent,
        check=False,
    )


def mp_queue() -> None:
    """Takes from an empty queue between processes."""
    import multiprocessing

    multiprocessing.get_context("fork").Queue().get()


def mp_process() -> None:
    """Waits for the end of a worker process that does not end."""
    import multiprocessing

    worker = multiprocessing.get_context("fork").Process(target=_endless_worker)
    worker.start()
    worker.join()


def asyncio() -> None:
    """An event loop in which nothing is ever ready."""
    import asyncio

    asyncio.run(asyncio.Event().wait())


def c_sleep() -> None:
    """In a C call that has given the GIL up."""
    FREEING.sleep(FOREVER_S)


def gil_sleep() -> None:
    """In a C call that keeps the GIL, asleep."""
    KEEPING.sleep(FOREVER_S)


def gil_spin() -> None:
    """In a C loop that keeps the GIL and looks at no signal."""
    collections.deque(itertools.repeat(0), maxlen=0)


def gil_regex() -> None:
    """In a regular expression that backtracks for ever; it keeps the GIL."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def gil_thread() -> None:
    """Another thread keeps the GIL in a C call; the main thread waits for it."""
    threading.Thread(target=gil_sleep, name="gil-holder", daemon=True).start()
    while True:
        time.sleep(0.001)


def mutex_vs_gil() -> None:
    """The main thread has the GIL and wants a C mutex whose owner wants the GIL."""
    mutex = ctypes.create_string_buffer(64)
    FREEING.pthread_mutex_init(mutex, None)
    is_held = threading.Event()

    def other() -> None:
        FREEING.pthread_mutex_lock(mutex)
        is_held.set()
        while True:
            time.sleep(0.001)

    threading.Thread(target=other, name="mutex-holder", daemon=True).start()
    is_held.wait()
    KEEPING.pthread_mutex_lock(mutex)


def d_state() -> None:
    """In an uninterruptible wait of the kernel (state D) that has given the GIL up."""
    _vfork(FREEING)


def d_state_gil() -> None:
    """In an uninterruptible wait of the kernel (state D) that keeps the GIL."""
    _vfork(KEEPING)


def undumpable() -> None:
    """Has asked the kernel to let nobody look into it, and sleeps."""
    FREEING.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    time.sleep(FOREVER_S)


def d_state_thread() -> None:
    """Another thread is in state D; the main thread sleeps."""
    threading.Thread(target=d_state, name="in-kernel", daemon=True).start()
    time.sleep(FOREVER_S)


def stopped() -> None:
    """Stopped by SIGSTOP."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(FOREVER_S)


def main_done() -> None:
    """The script is at its end; a thread that is no daemon keeps the process."""
    threading.Thread(target=sleep, name="last-one").start()


def gc() -> None:
    """Collects garbage all the time."""
    import gc

    kept = [[number] for number in range(500_000)]
    while kept:
        gc.collect()


def in_malloc() -> None:
    """In the C allocator with its lock held nearly all the time; the GIL is free."""
    FREEING.malloc.restype = ctypes.c_void_p
    FREEING.free.argtypes = (ctypes.c_void_p,)
    chunks = [FREEING.malloc(2000) for _ in range(200_000)]
    for chunk in chunks[::2]:
        FREEING.free(chunk)
    while True:
        FREEING.malloc_trim(0)  # walks every free chunk


MODES: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        *(busy, sleep, lock, event, condition, semaphore, barrier, queue, simple_queue, join),
        *(future, socket, accept, pipe, file_lock, record_lock, open_fifo, select, subprocess),
        *(mp_queue, mp_process),
        *(asyncio, c_sleep, gil_sleep, gil_spin, gil_regex, gil_thread, mutex_vs_gil),
        *(d_state, d_state_gil, d_state_thread, undumpable, stopped, main_done, gc, in_malloc),
    )
}


def _vfork(library: ctypes.CDLL) -> None:
    """Start a child the way vfork does: the kernel holds the caller until the child is gone.

    The child has a copy of the memory and runs none of the Python code in it, but libc's
    `system`, with a script that ends once this process is gone.
    """
    script = f"while kill -0 {os.getpid()} 2>/dev/null; do sleep 0.2; done"
    stack = ctypes.create_string_buffer(1 << 20)
    top = (ctypes.addressof(stack) + len(stack)) & ~0xFF
    run = ctypes.cast(library.system, ctypes.c_void_p)
    flags = CLONE_VFORK | signal.SIGCHLD
    library.clone(run, ctypes.c_void_p(top), flags, ctypes.c_char_p(script.encode()))


def _end_with_parent() -> None:
    """Called in a child: be killed when the parent ends."""
    FREEING.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _endless_worker() -> None:
    _end_with_parent()
    time.sleep(FOREVER_S)


def main() -> None:
    """Be stuck."""
    ways = "\n".join(f"  {name:<15} {function.__doc__}" for name, function in MODES.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=ways, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=MODES, metavar="MODE")
    mode = parser.parse_args().mode
    signal.alarm(LIFETIME_S)
    rank, loss, secret = 3, 0.125, Secretive()
    print("ready", flush=True)
    MODES[mode]()
    if mode != "main_done":
        print("returned", mode, rank, loss, secret, flush=True)
        time.sleep(FOREVER_S)


class Secretive:
    """A value whose representation must not be asked for by anybody who only looks."""

    def __repr__(self) -> str:
        print("repr was called", flush=True)
        return "Secretive()"


if __name__ == "__main__":
    main()
