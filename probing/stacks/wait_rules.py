"""What the functions, system calls and kernel functions that threads wait in are waits for.

Rules of this file: tables only, read by `waits`. A sentence begins with a word that fits behind
the name of a thread, and uses the terms of Python, POSIX and PyTorch. Library files are named by
their path below ``lib/python3.N`` or ``site-packages``. Within a table the order is that in which
the rules are tried.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Rule(NamedTuple):
    """A function of a library in which threads wait.

    Attributes:
        file: The library's file, or a folder that ends in ``/``.
        func: Its name without the class; a regular expression that fits the whole of it.
        says: What it waits for; ``{}`` stands for the function's name.
        owner: The class, where it matters and is known.
        line: What the line must hold where the class is not known (Python 3.10 tells none), or
            where the rule is for no class.
        busy: Whether a thread that waits there may use the processor.
    """

    file: str
    func: str
    says: str
    owner: str = ""
    line: str = ""
    busy: bool = False


COLLECTIVES = (
    "all_reduce|all_reduce_coalesced|all_gather|all_gather_into_tensor|all_gather_object"
    "|all_gather_coalesced|reduce_scatter|reduce_scatter_tensor|reduce|gather|gather_object"
    "|scatter|scatter_object_list|broadcast|broadcast_object_list|all_to_all|all_to_all_single"
    "|barrier|monitored_barrier"
)
LOCK = "waiting for a lock"
AUTOGRAD_THREAD = "pt_autograd_"
"""How the kernel's names of the threads begin that run the backward passes of devices."""
IDLE_DEVICE = "idle: autograd's thread of a device"
FOR_A_WORKER = "waiting for a batch from a DataLoader worker"
_GPU = "waiting for the GPU to finish its work"

LIBRARY: tuple[Rule, ...] = (
    Rule("threading.py", "wait", "waiting for an event (threading.Event)", "Event", r"_cond\.wait"),
    Rule("threading.py", "wait", "waiting at a barrier for other threads", "Barrier", r"\._wait\("),
    Rule("threading.py", "_wait", "waiting at a barrier for other threads"),
    Rule("threading.py", "wait|wait_for", "waiting for a condition (threading.Condition)"),
    Rule(
        "threading.py", "acquire", "waiting for a semaphore", r".*Semaphore", r"_cond\.wait|_cond:"
    ),
    Rule("threading.py", "acquire|__enter__", LOCK),
    Rule("threading.py", "join|_wait_for_tstate_lock", "waiting for a thread to end (join)"),
    Rule("threading.py", "start", "waiting for a new thread to begin"),
    Rule("threading.py", "_shutdown", "waiting at exit for the threads that are no daemons"),
    Rule("frozen importlib._bootstrap", "acquire", "waiting for another thread's import"),
    Rule("pdb.py", "_cmdloop|interaction", "waiting at the prompt of the debugger (pdb)"),
    Rule("queue.py", "get", "waiting for an item from a queue"),
    Rule("queue.py", "put", "waiting for room in a queue"),
    Rule("queue.py", "join", "waiting for a queue to be worked off"),
    Rule(
        "concurrent/futures/thread.py",
        "_worker",
        "idle: a pool's thread without work",
        line=r"work_queue\.get",
    ),
    Rule("concurrent/futures/", "result|exception|wait|as_completed", "waiting for a future"),
    Rule("concurrent/futures/process.py", "wait_result_broken_or_wakeup", "waiting for a pool"),
    Rule("subprocess.py", r"_?wait|_?communicate|_try_wait", "waiting for a child process"),
    Rule("multiprocessing/queues.py", "get", "waiting for an item from a queue between processes"),
    Rule("multiprocessing/queues.py", "put", "waiting for room in a queue between processes"),
    Rule(
        "multiprocessing/queues.py",
        "_feed",
        "idle: a queue's thread without anything to send",
        line=r"wait\(|notempty",
    ),
    Rule("multiprocessing/pool.py", "get|wait|next", "waiting for a process pool's result"),
    Rule("multiprocessing/pool.py", "worker", "idle: a pool without work", line=r"\bget\("),
    Rule("multiprocessing/pool.py", "_handle_.*|_wait_for.*", "idle: a pool without work"),
    Rule("multiprocessing/process.py", "join", "waiting for a worker process to end"),
    Rule("multiprocessing/synchronize.py", r".*", "waiting for a lock between processes"),
    Rule("multiprocessing/connection.py", "accept", "waiting for another process to connect"),
    Rule(
        "multiprocessing/connection.py",
        "_?send(_bytes)?",
        "waiting for another process to take what is sent",
    ),
    Rule("multiprocessing/connection.py", r".*", "waiting for another process to send"),
    Rule("multiprocessing/popen_\\w+.py", "poll|wait", "waiting for a worker process to end"),
    Rule("asyncio/base_events.py", "_run_once", "idle in its asyncio event loop"),
    Rule("asyncio/tasks.py", "sleep", "sleeping"),
    Rule("asyncio/locks.py", "acquire|__aenter__", "waiting for a lock (asyncio)"),
    Rule("asyncio/locks.py", "wait|_?wait_for|_block", "waiting for an event of asyncio"),
    Rule("asyncio/queues.py", "get", "waiting for an item from a queue"),
    Rule("asyncio/queues.py", "put", "waiting for room in a queue"),
    Rule("asyncio/queues.py", "join", "waiting for a queue to be worked off"),
    Rule("asyncio/streams.py", "read\\w*", "waiting for data from a stream"),
    Rule("asyncio/streams.py", "drain|wait_closed", "waiting for room in a stream"),
    Rule("asyncio/subprocess.py", "wait|communicate", "waiting for a child process"),
    Rule("gevent/hub.py", "sleep", "sleeping"),
    Rule("eventlet/greenthread.py", "sleep", "sleeping"),
    Rule("selectors.py", "select", "waiting for input or output (select)"),
    Rule("socketserver.py", "serve_forever", "idle: a server without requests"),
    Rule("socket.py", "accept", "waiting for a connection to a socket"),
    Rule("socket.py", "create_connection", "waiting for a connection to be made"),
    Rule("socket.py", "readinto", "waiting for data from a socket"),
    Rule("ssl.py", "do_handshake", "waiting for a TLS handshake"),
    Rule("ssl.py", "read|recv|recv_into", "waiting for data from a TLS socket"),
    Rule(
        r"re(/__init__)?.py",
        "match|fullmatch|search|sub|subn|split|findall",
        "in a regular expression (re.{})",
        busy=True,
    ),
    Rule(
        "torch/utils/data/dataloader.py",
        "_try_get_data|_get_data",
        FOR_A_WORKER,
    ),
    Rule(
        "torch/utils/data/dataloader.py",
        "_shutdown_workers",
        "waiting for DataLoader workers to end",
    ),
    Rule("torch/utils/data/_utils/worker.py", "_worker_loop", "idle: a DataLoader worker"),
    Rule(
        "torch/utils/data/_utils/pin_memory.py",
        "do_one_step",
        "idle: the DataLoader's thread that pins memory",
        line=r"_queue\.(get|put)\(",
    ),
    Rule(
        "torch/distributed/distributed_c10d.py",
        COLLECTIVES,
        "waiting for the other ranks in the collective {}",
        busy=True,
    ),
    Rule(
        "torch/distributed/distributed_c10d.py",
        "recv|send|recv_object_list|send_object_list|batch_isend_irecv",
        "waiting for another rank ({})",
        busy=True,
    ),
    Rule(
        "torch/distributed/distributed_c10d.py",
        "init_process_group|_store_based_barrier|new_group",
        "waiting for the other ranks to join ({})",
    ),
    Rule("torch/distributed/rendezvous.py", r".*", "waiting for the other ranks to join"),
    Rule("torch/(cuda|xpu|mps|accelerator)/", "(current_)?synchronize", _GPU, busy=True),
    Rule("torch/cuda/streams.py", "synchronize|wait", _GPU, busy=True),
    Rule("torch/_inductor/async_compile.py", r"wait|result", "waiting for kernels to be compiled"),
    Rule("torch/autograd/graph.py", "_engine_run_backward", "in the backward pass", busy=True),
)
"""Innermost wins nothing: of the rules that fit, the one of the outermost function speaks."""

PLUMBING = re.compile(
    r"(threading|queue|subprocess|selectors|socket|ssl|socketserver|contextlib|re|bdb|cmd|pdb)\.py"
    r"|(concurrent/futures|multiprocessing|asyncio|http|urllib|re|gevent|eventlet)/"
    r"|torch/(utils|distributed|cuda|xpu|mps|accelerator|_inductor)/"
)
"""Library files through which the walk from the innermost frame outwards goes on."""

NATIVE: tuple[tuple[str, str], ...] = (
    ("nccl|c10d::|gloo::|ProcessGroup|MPI_", "waiting for the other ranks in a collective"),
    ("(cu|cuda|hip)(Ctx|Device|Stream|Event)?Synchronize|cu(da)?Memcpy|^cuda.*Sync", _GPU),
    ("gc_collect|gc_main|deduce_unreachable|subtract_refs|move_unreachable", "collecting garbage"),
    ("sre_.*(match|search|count)|^SRE\\(", "in a regular expression"),
    ("^(PyThread_acquire_lock|sem_(timed|clock)?wait|acquire_timed|lock_PyThread)", LOCK),
    ("pthread_mutex_(timed)?lock|lll_lock_wait", "waiting for a C mutex ({})"),
    ("pthread_rwlock", "waiting for a C lock ({})"),
    ("pthread_join|pthread_clockjoin", "waiting for a C thread to end ({})"),
    ("^(omp_|GOMP_|kmp_|__kmp)", "waiting for OpenMP threads"),
    ("pthread_cond_(timed|clock)?wait", "waiting for a condition in C code ({})"),
    ("^_?(int_)?(malloc|free|realloc|calloc|memalign)(_|$)", "in the C allocator ({})"),
    ("^(__)?(clock_)?nanosleep$|^u?sleep$|^pysleep|^time_sleep", "sleeping"),
)
"""Names of C functions, and what a thread in them does."""

GIL_WAITS = frozenset({"take_gil", "pthread_cond_timedwait", "pthread_cond_clockwait"})
"""C functions that CPython waits for its lock in, and for nothing else."""

LINES: tuple[tuple[str, str], ...] = (
    (r"\.acquire\(|^(async )?with\b", LOCK),
    (r"\.get\(", "waiting for an item from a queue"),
    (r"\.join\(", "waiting for a thread to end (join)"),
    (r"\.result\(", "waiting for a future"),
    (r"\.wait\(", "waiting to be notified"),
    (r"\bu?sleep\(", "sleeping"),
)
"""Source lines whose C function waits for a futex, or in a call that the kernel does not name.

It names none that was interrupted and begun anew, which is what becomes of a sleep and of every
wait with a time limit once the process has been paused.
"""
BUSY_LINES: tuple[tuple[str, str], ...] = (
    (r"\bgc\.collect\(", "collecting garbage"),
    (r"\bre\.(match|search|fullmatch|sub|findall)\(", "in a regular expression"),
)
"""Source lines whose C function uses the processor."""

CALLS: tuple[tuple[str, str, str], ...] = (
    ("p?read(v|64)?", "pipe:", "waiting for data from a pipe"),
    ("p?write(v|64)?", "pipe:", "waiting for room in a pipe"),
    ("p?readv?(64)?|recv.*", "socket:", "waiting for data from a socket"),
    ("p?writev?(64)?|send(to|msg)", "socket:", "waiting for a peer to take data from a socket"),
    ("read", "/dev/(tty|pts)", "waiting for input from the terminal"),
    ("p?read(v|64)?|sendfile|splice", "/", "reading a file"),
    ("p?write(v|64)?", "/", "writing to a file"),
    ("p?read(v|64)?", "", "waiting for data"),
    ("recv.*", "", "waiting for data from a socket"),
    ("accept4?", "", "waiting for a connection to a socket"),
    ("connect", "", "waiting for a connection to be made"),
    ("select|pselect6", "no file", "sleeping"),
    ("select|pselect6|p?poll|epoll_.*|io_uring_enter", "", "waiting for input or output ({})"),
    ("wait4|waitid", "", "waiting for a child process"),
    ("(clock_)?nanosleep", "", "sleeping"),
    ("pause|rt_sigsuspend|rt_sigtimedwait", "", "waiting for a signal"),
    ("flock|fcntl", "", "waiting for a file lock"),
    ("fsync|fdatasync|msync", "", "waiting for data to reach the disk"),
    ("semop|semtimedop", "", "waiting for a lock between processes"),
    ("mq_timedreceive", "", "waiting for a message from another process"),
    ("open|openat", "", "opening a file"),
    ("futex|futex_wait", "", "waiting for a lock or a condition (futex)"),
)
"""System calls, what their descriptor is of, and what a thread in them waits for."""

WCHANS: tuple[tuple[str, str], ...] = (
    ("hrtimer_nanosleep|do_nanosleep", "nanosleep"),
    ("futex_", "futex"),
    ("do_wait", "wait4"),
    ("anon_pipe_|pipe_(read|wait)", "read"),
    ("poll_schedule|do_poll|do_select|do_sys_poll", "poll"),
    ("ep_poll|do_epoll", "epoll_wait"),
    ("inet_csk_accept", "accept"),
    ("unix_stream_read|sk_wait_data|tcp_recv|skb_wait|__skb_wait", "recvfrom"),
    ("locks_lock_inode_wait|flock_|fcntl_", "flock"),
    ("do_sys?_?pause|sigsuspend", "pause"),
)
"""Functions of the kernel, and the system call that a thread in them must be in."""

KERNEL_FILE_IO = re.compile(
    "io_schedule|folio_wait|wait_on_page|wait_on_buffer|blk_|bio_|jbd2|ext4|xfs|btrfs|nfs|rpc_"
    "|fuse|ceph|cifs|cl_|ll_|lustre|obd_|gpfs|cxi|dax_|balance_dirty|do_fsync|writeback"
)
"""Functions of the kernel that wait for a disk or a file server."""
