"""What a thread waits for, told from what was seen of it."""

from __future__ import annotations

import os
import threading

import pytest

from probing.linux import process, syscalls
from probing.linux.process import SystemCall, ThreadFacts
from probing.linux.thread_numbers import match_records
from probing.messages.common import Frame, ThreadStack
from probing.reach.ladder import _outside_answer
from probing.stacks.wait_rules import LOCK
from probing.stacks.waits import (
    WAITS_FOR_GIL,
    Sight,
    c_function,
    describe,
    gil_waiters,
    library_path,
)
from tests.harness.targets import wait_until

pytestmark = pytest.mark.anypython

LIB = "/usr/lib/python3.11/"
TORCH = "/venv/lib/python3.11/site-packages/torch/"
FUTEX = SystemCall(name="futex")
FUTEX_LIMITED = SystemCall(name="futex", has_limit=True)


def py(func: str, file: str = "/job/train.py", line: str | None = None) -> Frame:
    """A Python frame; of the job where no file is given."""
    return Frame(func=func, file=file, lineno=1, line=line)


def c(func: str, file: str = "/usr/lib/libc.so.6") -> Frame:
    """A native frame; of the C library where no file is given."""
    return Frame(func=func, file=file, lineno=0, kind="native")


def seen(
    *frames: Frame,
    state: str = "S",
    call: SystemCall | None = FUTEX,
    wchan: str | None = None,
    **more: bool,
) -> Sight:
    """A sight of a thread that is in a system call, unless it runs."""
    call = None if state == "R" else call
    facts = ThreadFacts(thread_id=7, state=state, cpu_s=0.0, wchan=wchan, call=call)
    return Sight(frames=frames, facts=facts, **more)


CONDITION = py("Condition.wait", LIB + "threading.py", "waiter.acquire()")
OLD_CONDITION = py("wait", LIB + "threading.py", "waiter.acquire()")
CONNECTION = py("Connection._recv", LIB + "multiprocessing/connection.py")

BY_FRAMES = {
    "a lock": ([py("f", line="held.acquire()")], "waiting for a lock"),
    "with": ([py("f", line="with lock:")], "waiting for a lock"),
    "condition": ([CONDITION, py("f")], "waiting for a condition (threading.Condition)"),
    "event": (
        [CONDITION, py("Event.wait", LIB + "threading.py"), py("f")],
        "waiting for an event (threading.Event)",
    ),
    "event on 3.10": (
        [
            OLD_CONDITION,
            py("wait", LIB + "threading.py", "signaled = self._cond.wait(timeout)"),
            py("f"),
        ],
        "waiting for an event (threading.Event)",
    ),
    "barrier on 3.10": (
        [
            OLD_CONDITION,
            py("wait_for", LIB + "threading.py", "self.wait(waittime)"),
            py("_wait", LIB + "threading.py"),
            py("wait", LIB + "threading.py", "self._wait(timeout)"),
        ],
        "waiting at a barrier for other threads",
    ),
    "bounded semaphore": (
        [CONDITION, py("BoundedSemaphore.acquire", LIB + "threading.py"), py("f")],
        "waiting for a semaphore",
    ),
    "queue": ([CONDITION, py("Queue.get", LIB + "queue.py")], "waiting for an item from a queue"),
    "full queue": ([CONDITION, py("Queue.put", LIB + "queue.py")], "waiting for room in a queue"),
    "the job's own queue.py": (
        [CONDITION, py("Queue.get", "/job/queue.py")],
        "waiting for a condition (threading.Condition)",
    ),
    "library far out": (
        [py("f", line="held.acquire()"), py("Queue.get", LIB + "queue.py")],
        "waiting for a lock",
    ),
    "join": (
        [py("Thread.join", LIB + "threading.py"), py("f")],
        "waiting for a thread to end (join)",
    ),
    "exit": (
        [py("_shutdown", LIB + "threading.py")],
        "waiting at exit for the threads that are no daemons",
    ),
    "debugger": (
        [
            py("Cmd.cmdloop", LIB + "cmd.py", "line = input(self.prompt)"),
            py("Pdb._cmdloop", LIB + "pdb.py", "self.cmdloop()"),
            py("Pdb.interaction", LIB + "pdb.py", "self._cmdloop()"),
            py("Bdb.dispatch_line", LIB + "bdb.py", "self.user_line(frame)"),
            py("train"),
        ],
        "waiting at the prompt of the debugger (pdb)",
    ),
    "future": (
        [CONDITION, py("Future.result", LIB + "concurrent/futures/_base.py")],
        "waiting for a future",
    ),
    "idle pool thread": (
        [
            py("_worker", LIB + "concurrent/futures/thread.py", "item = work_queue.get()"),
            py("Thread.run", LIB + "threading.py"),
        ],
        "idle: a pool's thread without work",
    ),
    "pool thread in a function of C": (
        [
            py("_WorkItem.run", LIB + "concurrent/futures/thread.py", "result = self.fn()"),
            py("_worker", LIB + "concurrent/futures/thread.py", "work_item.run()"),
            py("Thread.run", LIB + "threading.py"),
        ],
        "waiting for a lock or a condition (futex)",
    ),
    "queue that sends": (
        [
            py("Connection._send", LIB + "multiprocessing/connection.py"),
            py("Connection._send_bytes", LIB + "multiprocessing/connection.py"),
            py("_ConnectionBase.send_bytes", LIB + "multiprocessing/connection.py"),
            py("Queue._feed", LIB + "multiprocessing/queues.py", "send_bytes(obj)"),
        ],
        "waiting for another process to take what is sent",
    ),
    "child": (
        [py("Popen._try_wait", LIB + "subprocess.py"), py("run", LIB + "subprocess.py")],
        "waiting for a child process",
    ),
    "queue between processes": (
        [CONNECTION, py("Queue.get", LIB + "multiprocessing/queues.py")],
        "waiting for an item from a queue between processes",
    ),
    "pool": (
        [
            CONDITION,
            py("Event.wait", LIB + "threading.py"),
            py("ApplyResult.wait", LIB + "multiprocessing/pool.py"),
            py("ApplyResult.get", LIB + "multiprocessing/pool.py"),
            py("Pool.map", LIB + "multiprocessing/pool.py"),
        ],
        "waiting for a process pool's result",
    ),
    "dataloader": (
        [
            CONNECTION,
            py("Queue.get", LIB + "multiprocessing/queues.py"),
            py("_MultiProcessingDataLoaderIter._try_get_data", TORCH + "utils/data/dataloader.py"),
            py("_BaseDataLoaderIter.__next__", TORCH + "utils/data/dataloader.py"),
            py("train"),
        ],
        "waiting for a batch from a DataLoader worker",
    ),
    "dataloader's worker": (
        [
            CONNECTION,
            py("Queue.get", LIB + "multiprocessing/queues.py"),
            py("_worker_loop", TORCH + "utils/data/_utils/worker.py"),
        ],
        "idle: a DataLoader worker",
    ),
    "a collective": (
        [
            py("all_reduce", TORCH + "distributed/distributed_c10d.py"),
            py("wrapper", TORCH + "distributed/c10d_logger.py"),
            py("train"),
        ],
        "waiting for the other ranks in the collective all_reduce",
    ),
    "a message": (
        [py("recv", TORCH + "distributed/distributed_c10d.py")],
        "waiting for another rank (recv)",
    ),
    "ranks to join": (
        [
            py("_tcp_rendezvous_handler", TORCH + "distributed/rendezvous.py"),
            py("init_process_group", TORCH + "distributed/distributed_c10d.py"),
        ],
        "waiting for the other ranks to join (init_process_group)",
    ),
    "a collective, natively": (
        [c("pthread_cond_wait"), c("c10d::Work::wait", "libtorch_cpu.so"), py("train")],
        "waiting for the other ranks in a collective",
    ),
    "device": (
        [py("synchronize", TORCH + "cuda/__init__.py"), py("train")],
        "waiting for the GPU to finish its work",
    ),
    "device, natively": (
        [c("sched_yield"), c("cudaStreamSynchronize", "libcudart.so"), py("train")],
        "waiting for the GPU to finish its work",
    ),
    "event loop": (
        [
            py("EpollSelector.select", LIB + "selectors.py"),
            py("BaseEventLoop._run_once", LIB + "asyncio/base_events.py"),
        ],
        "idle in its asyncio event loop",
    ),
    "TLS": (
        [py("SSLSocket.read", LIB + "ssl.py"), py("SocketIO.readinto", LIB + "socket.py")],
        "waiting for data from a socket",
    ),
    "a C mutex": ([c("pthread_mutex_lock"), py("f")], "waiting for a C mutex (pthread_mutex_lock)"),
    "a lock, natively": (
        [c("0x7f00"), c("PyThread_acquire_lock_timed", "python3.10"), py("f")],
        "waiting for a lock",
    ),
    "a queue in C": (
        [c("PyThread_acquire_lock_timed", "python3.10"), py("f", line="q.get()")],
        "waiting for an item from a queue",
    ),
    "the GIL": (
        [
            c("0x7f00"),
            c("pthread_cond_timedwait"),
            c("time_sleep", "/x/libpython3.11.so.1.0"),
            py("f"),
        ],
        "waiting for the interpreter lock (GIL)",
    ),
    "no GIL": (
        [c("pthread_cond_timedwait"), c("at::wait", "/x/libtorch_cpu.so"), py("f")],
        "waiting for a condition in C code (pthread_cond_timedwait)",
    ),
    "some C code": (
        [c("solve", "/x/solver.so"), py("f")],
        "waiting for a lock or a condition (futex)",
    ),
    "some lock": ([py("f", line="solve(x)")], "waiting for a lock or a condition (futex)"),
}


@pytest.mark.parametrize("case", BY_FRAMES)
def test_frames_say_what_a_sleeping_thread_waits_for(case: str) -> None:
    """Of a thread asleep in a futex, its functions tell what the futex is."""
    frames, says = BY_FRAMES[case]
    assert describe(seen(*frames)) == says


BY_CALL = {
    "pipe": (SystemCall(name="read", file="pipe:[7]"), "waiting for data from a pipe"),
    "full pipe": (SystemCall(name="write", file="pipe:[7]"), "waiting for room in a pipe"),
    "socket": (SystemCall(name="recvfrom", file="socket:[7]"), "waiting for data from a socket"),
    "peer": (
        SystemCall(name="sendto", file="socket:[7]"),
        "waiting for a peer to take data from a socket",
    ),
    "terminal": (SystemCall(name="read", file="/dev/pts/0"), "waiting for input from the terminal"),
    "file": (SystemCall(name="pread64", file="/data/x.bin"), "reading a file"),
    "counter": (SystemCall(name="read", file="anon_inode:[eventfd]"), "waiting for data"),
    "accept": (SystemCall(name="accept4"), "waiting for a connection to a socket"),
    "poll": (SystemCall(name="poll"), "waiting for input or output (poll)"),
    "select": (SystemCall(name="pselect6"), "waiting for input or output (pselect6)"),
    "select on nothing": (SystemCall(name="pselect6", file="no file"), "sleeping"),
    "child": (SystemCall(name="wait4"), "waiting for a child process"),
    "sleep": (SystemCall(name="clock_nanosleep"), "sleeping"),
    "file lock": (SystemCall(name="flock", file="/tmp/lock"), "waiting for a file lock"),
    "disk": (SystemCall(name="fsync", file="/data/x.bin"), "waiting for data to reach the disk"),
    "unknown": (SystemCall(name="syscall 999"), None),
}


@pytest.mark.parametrize("case", BY_CALL)
def test_the_system_call_says_it_where_no_function_does(case: str) -> None:
    """A job's own function that is in C code is explained by what the kernel does for it."""
    call, says = BY_CALL[case]
    assert describe(seen(py("f"), call=call)) == says


@pytest.mark.parametrize(
    ("wchan", "says"),
    [
        ("hrtimer_nanosleep", "sleeping"),
        ("futex_do_wait", "waiting for a lock or a condition (futex)"),
        ("do_wait", "waiting for a child process"),
        ("poll_schedule_timeout", "waiting for input or output (poll)"),
        ("anon_pipe_read", "waiting for data"),
        ("inet_csk_accept", "waiting for a connection to a socket"),
        ("something_new", None),
        (None, None),
    ],
)
def test_where_the_kernel_sleeps_stands_in_for_an_unknown_call(
    wchan: str | None, says: str | None
) -> None:
    """A call that was restarted, or is hidden, is known by the function of the kernel."""
    for call in (None, SystemCall(name="restart_syscall")):
        assert describe(seen(py("f"), call=call, wchan=wchan)) == says


def test_the_line_stands_in_for_a_call_that_was_begun_anew() -> None:
    """A pause makes the kernel forget which call a sleep was; the source line tells."""
    anew = SystemCall(name="restart_syscall")
    for line, says in (("time.sleep(60)", "sleeping"), ("lock.acquire(timeout=60)", LOCK)):
        assert describe(seen(py("f", line=line), call=anew, wchan="do_syscall_64")) == says
        assert describe(seen(py("f", line=line), call=SystemCall(name="read"))) != says


def test_what_the_kernel_says_comes_first() -> None:
    """Stopped, uninterruptible and ended threads are that, whatever their frames are."""
    frames = (CONDITION, py("Queue.get", LIB + "queue.py"))
    assert describe(seen(*frames, state="T")) == "stopped by a signal"
    assert describe(seen(*frames, state="t")) == "stopped by a debugger"
    assert describe(seen(*frames, state="Z")) == "ended"
    kernel = "in an uninterruptible wait"
    assert describe(seen(*frames, state="D")) == f"{kernel} of the kernel"
    nfs = seen(*frames, state="D", wchan="rpc_wait_bit_killable")
    assert describe(nfs) == f"{kernel} for file input or output (rpc_wait_bit_killable)"
    disk = seen(*frames, state="D", wchan="folio_wait_bit_common")
    assert describe(disk) == f"{kernel} for file input or output (folio_wait_bit_common)"
    fork = seen(state="D", call=SystemCall(name="vfork"), wchan="kernel_clone")
    assert describe(fork) == f"{kernel} for a new process to begin (kernel_clone)"


def test_a_running_thread_waits_for_nothing() -> None:
    """Functions that sleep are believed only of threads that sleep; those that spin, always."""
    queue = (CONDITION, py("Queue.get", LIB + "queue.py"))
    assert describe(seen(*queue, state="R")) == "running"
    assert describe(seen(*queue, state="R", has_native=True)) == "running Python code"
    assert describe(seen(c("daxpy_", "/x/libblas.so"), py("f"), state="R")) == "in C code (daxpy_)"
    regex = seen(py("match", LIB + "re/__init__.py"), py("f"), state="R")
    assert describe(regex) == "in a regular expression (re.match)"
    assert describe(seen(py("f", line="gc.collect()"), state="R")) == "collecting garbage"
    garbage = seen(c("gc_collect_main", "/x/libpython3.12.so"), py("f"), state="R")
    assert describe(garbage) == "collecting garbage"
    spinning = seen(py("all_gather", TORCH + "distributed/distributed_c10d.py"), state="R")
    assert describe(spinning) == "waiting for the other ranks in the collective all_gather"
    backward = py("_engine_run_backward", TORCH + "autograd/graph.py")
    assert describe(seen(backward, state="R")) == "in the backward pass"


def test_a_thread_that_the_agent_keeps_from_running_runs() -> None:
    """The agent has the interpreter lock as it looks; who waits for it then is not stuck."""
    frame = py("f", line="x = x + 1")
    assert describe(seen(frame, call=FUTEX_LIMITED, by_agent=True)) == "running Python code"
    lock = py("f", line="held.acquire(timeout=60)")
    assert describe(seen(lock, call=FUTEX_LIMITED, by_agent=True)) == "waiting for a lock"


def test_nothing_known_is_nothing_said() -> None:
    """Without facts and without a known function there is no sentence."""
    assert describe(Sight(frames=())) is None
    assert describe(Sight(frames=(py("f"),))) is None
    assert describe(Sight(frames=(CONDITION,))) == "waiting for a condition (threading.Condition)"


def test_who_waits_for_the_interpreter_lock_wakes_up_all_the_time() -> None:
    """Only a thread that keeps asking anew for a futex is taken to wait for the lock."""

    def facts(state: str, call: SystemCall | None, switches: int | None) -> dict[int, ThreadFacts]:
        fact = ThreadFacts(thread_id=7, state=state, cpu_s=0, call=call, switches=switches)
        return {7: fact}

    asking = facts("S", FUTEX_LIMITED, 10), facts("S", FUTEX_LIMITED, 14)
    assert gil_waiters(*asking) == {7}
    assert gil_waiters(asking[0], facts("R", None, 14)) == {7}
    assert describe(seen(CONDITION, wants_gil=True)) == "waiting for the interpreter lock (GIL)"
    for before, after in (
        (facts("S", FUTEX, 10), facts("S", FUTEX, 10)),
        (facts("R", None, 10), facts("R", None, 14)),
        (facts("S", FUTEX, 10), facts("D", None, 14)),
        (facts("S", FUTEX, 10), facts("S", SystemCall(name="poll"), 14)),
        (facts("S", FUTEX, None), facts("S", FUTEX, 14)),
        ({}, facts("S", FUTEX, 14)),
    ):
        assert gil_waiters(before, after) == set()


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("/usr/lib/python3.11/queue.py", "queue.py"),
        ("/x/lib/python3.14t/asyncio/runners.py", "asyncio/runners.py"),
        ("/x/lib/python3.10/site-packages/torch/cuda/streams.py", "torch/cuda/streams.py"),
        ("/usr/lib/python3/dist-packages/torch/cuda/streams.py", "torch/cuda/streams.py"),
        ("/home/me/pytorch/torch/distributed/rendezvous.py", "torch/distributed/rendezvous.py"),
        ("/home/me/python3.11/queue.txt/train.py", None),
        ("/home/me/queue.py", None),
        ("<stdin>", None),
    ],
)
def test_library_files_are_told_from_the_jobs_own(file: str, path: str | None) -> None:
    """What lies under a Python installation is a library, by its path in there."""
    assert library_path(file) == path


def test_the_innermost_named_c_function_is_the_one_to_name() -> None:
    """Bare addresses and the C functions below the first Python frame do not count."""
    assert c_function([c("0x7f00"), c("nanosleep"), c("sleep"), py("f")]) == "nanosleep"
    assert c_function([c("0x7f00"), py("f"), c("main")]) is None


def test_system_calls_have_the_same_names_on_both_machines() -> None:
    """The numbers differ between x86-64 and aarch64, the calls do not, but for old ones."""
    intel, arm = (set(syscalls.NUMBERS[machine].values()) for machine in ("x86_64", "aarch64"))
    assert arm - intel == set()
    assert intel - arm == {*("open", "poll", "select", "pause", "fork", "vfork", "epoll_wait")}
    assert syscalls.name_of(202, "x86_64") == "futex" == syscalls.name_of(98, "aarch64")
    assert syscalls.name_of(9999, "x86_64") == "syscall 9999"
    assert syscalls.name_of(1, "riscv64") == "syscall 1"


def test_records_of_threads_are_matched_at_the_place_where_all_differ() -> None:
    """A place where two threads hold the same number, or any holds no thread's, is not it."""

    def record(*words: int) -> bytes:
        return b"".join(word.to_bytes(4, "little") for word in words)

    records = {0x10: record(5, 100, 100), 0x20: record(5, 100, 101)}
    assert match_records(records, {100, 101, 102}) == {0x10: 100, 0x20: 101}
    assert match_records({0x10: record(5, 6)}, {100}) == {}
    assert match_records({0x10: b""}, {100}) == {}
    assert match_records({}, {100}) == {}


def test_who_waits_for_the_agent_to_give_the_interpreter_lock_back_runs() -> None:
    """The agent holds it for as long as it is asked; that is no wait of the job's."""
    begun, is_over = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        is_over.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        begun.wait(60)
        number = thread.native_id or 0
        look = wait_until(lambda: facts_in_futex(number), "a thread in a futex")
        before = {number: look._replace(switches=(look.switches or 0) - 5)}
        says = [
            _outside_answer(os.getpid(), stacks_with(holder, number), before, has_native=False)
            for holder in ("MainThread", "probing-agent")
        ]
    finally:
        is_over.set()
        thread.join()
    words = [{one.waiting for one in trace.threads if one.thread_id == number} for trace in says]
    assert words == [{WAITS_FOR_GIL}, {"running Python code"}]


def facts_in_futex(number: int) -> ThreadFacts | None:
    """What the kernel tells of a thread of this process, once it waits with a time limit."""
    fact = process.threads(os.getpid(), {number}).get(number)
    is_there = fact is not None and fact.state == "S" and fact.call is not None
    return fact if is_there and fact is not None and fact.call == FUTEX_LIMITED else None


def stacks_with(holder: str, number: int) -> list[ThreadStack]:
    """A thread without frames, and one that has the interpreter lock."""
    return [
        ThreadStack(thread_id=number, name="worker", is_main=False, frames=()),
        ThreadStack(thread_id=1, name=holder, is_main=False, frames=(py("f"),), holds_gil=True),
    ]
