"""What a crash leaves behind, and that it changes nothing of the crash itself."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, strategies as st

import probing
from probing.cli.render.process.stacks import render_backtrace
from probing.cluster.node.figures import Figures
from probing.cluster.node.roster import Roster
from probing.messages.codec import encode
from probing.messages.common import ThreadStack
from probing.postmortem import crashes
from probing.postmortem.crashes import CrashRecord, parse_fatal, read_crash
from probing.postmortem.endings import Reason, ending_of
from probing.postmortem.last_known import has_last_stack, last_known
from probing.postmortem.terminations import termination_of
from probing.ring.native import IN_C
from probing.ring.peek import last_step
from probing.rundir.folders import ProcessFolder, RunDirectory
from probing.tables import EVALUATIONS, MEMORY, STAGES, STEPS
from tests.harness.name_lists import encode_names
from tests.harness.ring_writer import CLOCK_OFFSET_NS, RingWriter, trace_values, trace_writer
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path, wait_until

FAULTHANDLER_TEXT = rb"""{"main": 4096, "agent": "/there/probing/agent/"}
Fatal Python error: Segmentation fault

Thread 0x0000000000003000 [probing-agent] (most recent call first):
  File "/there/probing/agent/listener.py", line 118 in _wait
  File "/there/probing/agent/listener.py", line 94 in _run
  File "/lib/threading.py", line 982 in run
  File "/lib/threading.py", line 1045 in _bootstrap_inner
  File "/lib/threading.py", line 1002 in _bootstrap

Thread 0x0000000000002000 [w\xf6rker] (most recent call first):
  <no Python frame>

Current thread 0x0000000000001000 [python] (most recent call first):
  Garbage-collecting
  File "/job/tr\xe4in.py", line 7 in st\u2032p
  File "/there/probing/agent/sources/calls/modules.py", line 96 in call
  File ???, line ??? in ???
  File "/job/tr\xe4in.py", line 9 in <module>
  ...

Current thread's C stack trace (most recent call first):
  Binary file "/lib/libpython3.14.so", at _Py_DumpStack+0x31 [0x7f0000000031]
  <truncated rest of calls>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""
"""What faulthandler of Python 3.14 writes, behind our own line."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program under test ended.

    Attributes:
        status: As the kernel tells it, with the mark of a core dump.
    """

    status: int
    stdout: str
    stderr: str
    home: Path
    cwd: Path

    @property
    def seen(self) -> tuple[int, str, str]:
        """What whoever started it gets to see."""
        return self.status, self.stdout, self.stderr

    @property
    def folder(self) -> ProcessFolder:
        """The run folder of the one process with an agent."""
        (folder,) = RunDirectory(self.home).folders()
        return folder


def end(cwd: Path, *words: str, agent: bool = True, **extra: str) -> Ended:
    """Run the program of crashes to its end."""
    cwd = cwd / ("with" if agent else "without")
    cwd.mkdir(parents=True)
    argv = [sys.executable, str(program_path("crashes")), *words]
    # A process with a second thread, which the agent has, is warned of forks since Python 3.12.
    extra.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")
    env = clean_env(cwd / "home", PROBING="0", **({"AGENT": "1"} if agent else {}), **extra)
    out, err = cwd / "stdout", cwd / "stderr"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(argv, cwd=cwd, env=env, stdout=stdout, stderr=stderr)
    try:
        status = wait_until(lambda: [s for pid, s in [os.waitpid(process.pid, os.WNOHANG)] if pid],
                            f"the end of {words}")[0]  # fmt: skip
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
    return Ended(
        status=status, stdout=out.read_text(), stderr=err.read_text(), home=cwd / "home", cwd=cwd
    )


ENDS = [
    ("segv", -signal.SIGSEGV, "signal", "SIGSEGV"),
    ("abort", -signal.SIGABRT, "signal", "SIGABRT"),
    ("sigfpe", -signal.SIGFPE, "signal", "SIGFPE"),
    ("segv in_thread", -signal.SIGSEGV, "signal", "SIGSEGV"),
    ("exception", 1, "exception", "Crashed"),
    ("interrupt", -signal.SIGINT, "exception", "KeyboardInterrupt"),
    ("recursion", 1, "exception", "RecursionError"),
    ("unshown", 1, "exception", "unshown.<locals>.Silent"),
    ("exception before:own_hook", 1, "exception", "Crashed"),
    ("exception after:own_hook", 1, "exception", "Crashed"),
    ("exception in_thread", 0, "thread exception", "Crashed"),
    ("exception in_thread before:own_thread_hook", 0, "thread exception", "Crashed"),
    ("segv after:own_hook", -signal.SIGSEGV, "signal", "SIGSEGV"),
]
"""What the program does, its exit code, and what kind of record of what it leaves."""

REASONS = [
    ("returns", "orderly"),
    ("exception", "exception"),
    ("interrupt", "interrupted"),
    ("segv", "signal"),
    ("sigkill", "killed"),
    ("exception stopped", "unknown"),
    ("exits_143", "terminated"),
    *(
        [
            ("sigterm", "terminated"),
            ("sigterm_and_sigkill before:own_sigterm_that_goes_on", "terminated"),
            ("sigterm_and_exit before:own_sigterm_that_goes_on", "terminated"),
            ("sigterm_and_exit after:own_sigterm_that_goes_on after:looked_again", "terminated"),
            ("sigterm before:own_sigterm_that_raises", "terminated"),
            ("sigterm_long_before before:own_sigterm_that_goes_on", "exception"),
            ("sigterm_and_exit before:ignores_sigterm", "exit_code"),
            ("segv before:own_sigterm_that_goes_on", "signal"),
        ]
        * (IN_C is not None)
    ),
]
"""What the program does, and how a node server tells of its end in a word."""

SILENT_ENDS = [
    ("returns", 0),
    ("exits", 3),
    ("exits in_thread", 0),
    ("sigkill", -signal.SIGKILL),
    ("sigterm", -signal.SIGTERM),
    ("own_sigterm", 7),
    ("sigterm stopped", -signal.SIGTERM),
    ("sigterm in_thread", -signal.SIGTERM),
    ("sigterm in_fork", 0),
    ("sigterm_and_sigkill before:own_sigterm_that_goes_on", -signal.SIGKILL),
    ("sigterm_and_sigkill after:own_sigterm_that_goes_on", -signal.SIGKILL),
    ("sigterm_and_sigkill stopped before:own_sigterm_that_goes_on", -signal.SIGKILL),
    ("sigterm_and_sigkill before:ignores_sigterm", -signal.SIGKILL),
    ("sigterm before:own_stacks_at_sigterm", -signal.SIGTERM),
    ("sigterm after:own_stacks_at_sigterm", -signal.SIGTERM),
    ("segv stopped", -signal.SIGSEGV),
    ("exception stopped", 1),
    ("exception stopped after:own_hook", 1),
    ("exception in_thread after:own_thread_hook", 0),
    ("segv in_fork", 0),
    ("abort in_fork", 0),
    ("exception in_fork", 0),
    ("sigfpe before:own_signal_handler", 0),
    ("sigfpe after:own_signal_handler", 0),
    ("sigfpe stopped after:own_signal_handler", 0),
    ("sigfpe in_fork after:own_signal_handler", 0),
    ("sigfpe stopped before:ignore_in_c", 0),
    ("sigfpe stopped after:ignore_in_c", 0),
    ("segv after:own_faulthandler_off", -signal.SIGSEGV),
]
"""What the program does and its exit code, where it leaves no record."""


@pytest.mark.anypython
@pytest.mark.parametrize(("words", "reason"), REASONS)
def test_metrics_tell_how_it_ended(words: str, reason: str, tmp_path: Path) -> None:
    """An orderly end and a crash have different words, of which there are few."""
    ended = end(tmp_path, *words.split())
    (found,) = Figures(Roster(RunDirectory(ended.home), lambda _: None)).now()
    assert (found.ended, found.job, found.values) == (reason, "crashes", {})
    assert reason in get_args(Reason)


@pytest.mark.anypython
@pytest.mark.skipif(IN_C is None, reason="only the C part is told of SIGTERM")
def test_who_asked_it_to_end_is_told(tmp_path: Path) -> None:
    """With the sender; nothing is left of a SIGTERM to a forked child, nor of one before."""
    ending = ending_of(end(tmp_path / "1", "sigterm").folder, ())
    assert ending is not None
    (told,) = ending.sentences
    assert re.match(
        r"It was asked to end by a SIGTERM of process \d+ \(python[\d.]*\) at \d{4}-[^,]*\.$", told
    )
    words = ("sigterm_and_sigkill", "before:own_sigterm_that_goes_on")
    ending = ending_of(end(tmp_path / "2", *words).folder, ())
    assert ending is not None
    assert ending.certain[0].endswith(", which a handler of its own took.")
    assert ending.certain[1].startswith("It ended without a word")
    raised = end(tmp_path / "4", "sigterm", "before:own_sigterm_that_raises")
    said = probing.connect(str(raised.folder.path)).hang().headline
    assert "has ended: it was asked to end by a SIGTERM" in said
    assert "which a handler of its own took. It ended with an unhandled" in said
    assert not end(tmp_path / "3", "sigterm", "in_fork").folder.terminated.exists()


@given(data=st.binary(max_size=40))
def test_any_bytes_give_a_termination_or_none(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Whoever writes into the folder of an ended process is not believed."""
    folder = ProcessFolder(path=tmp_path_factory.mktemp("run"), pid=1, start_time=1)
    folder.terminated.write_bytes(data)
    found = termination_of(folder, None)
    assert found is None or found.sentence.isprintable()


@pytest.mark.anypython
@pytest.mark.parametrize(("words", "code", "kind", "name"), ENDS, ids=[e[0] for e in ENDS])
def test_a_crash_is_recorded_and_stays_what_it_is(
    words: str, code: int, kind: str, name: str, tmp_path: Path
) -> None:
    """Status and output are those of a run without the agent; the record names the culprit."""
    without, ended = end(tmp_path, *words.split(), agent=False), end(tmp_path, *words.split())
    assert ended.seen == without.seen
    assert os.waitstatus_to_exitcode(ended.status) == code
    record = read_crash(ended.folder)
    assert record is not None
    assert (record.kind, record.type) == (kind, name)
    assert abs(time.time() - record.when_ns / 1e9) < 3600
    first = record.threads[0]
    culprit = next(frame for frame in first.frames if frame.func == "culprit")
    assert culprit.line == "globals()[sys.argv[1]]()"
    assert culprit.file == str(program_path("crashes"))
    assert [t.is_main for t in record.threads if t.is_main] == [True]
    assert first.is_main != ("in_thread" in words)
    assert not any("/agent/" in frame.file for t in record.threads for frame in t.frames)


@pytest.mark.anypython
@pytest.mark.parametrize(("words", "code"), SILENT_ENDS, ids=[e[0] for e in SILENT_ENDS])
def test_what_is_no_crash_of_ours_leaves_no_record(words: str, code: int, tmp_path: Path) -> None:
    """An end of another kind, a child's crash, or one after `stop` is as if we were not there."""
    without, ended = end(tmp_path, *words.split(), agent=False), end(tmp_path, *words.split())
    assert ended.seen == without.seen
    assert os.waitstatus_to_exitcode(ended.status) == code
    assert read_crash(ended.folder) is None
    assert last_known(ended.folder) is None


@pytest.mark.anypython
def test_a_process_without_memory_is_recorded(tmp_path: Path) -> None:
    """With not a page of address space left the record of the MemoryError is still written.

    What Python can print then depends on what is left to print it with, agent or not.
    """
    without, ended = end(tmp_path, "memory", agent=False), end(tmp_path, "memory")
    assert ended.status == without.status
    assert "MemoryError" in ended.stderr
    record = read_crash(ended.folder)
    assert record is not None
    assert record.type == "MemoryError"
    assert [f.func for f in record.threads[0].frames] == ["memory", "culprit", "<module>"]


@pytest.mark.anypython
def test_a_core_dump_is_still_written(tmp_path: Path) -> None:
    """Where the system writes a core for a fatal signal, it does so with the agent, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        statuses = [end(tmp_path, "segv", agent=agent).status for agent in (False, True)]
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    assert statuses[0] == statuses[1]
    assert os.WCOREDUMP(statuses[1]) == os.WCOREDUMP(statuses[0])
    for core in tmp_path.rglob("core*"):
        core.unlink()


@pytest.mark.anypython
@pytest.mark.parametrize("words", ["segv before:own_faulthandler", "segv after:own_faulthandler"])
def test_the_programs_own_faulthandler_writes_where_it_did(words: str, tmp_path: Path) -> None:
    """Its file has the crashed thread's stack, as without the agent; ours stays empty."""
    without, ended = end(tmp_path, *words.split(), agent=False), end(tmp_path, *words.split())
    assert ended.seen == without.seen
    assert crashed_part(ended.cwd / "own.txt") == crashed_part(without.cwd / "own.txt")
    assert "in culprit" in crashed_part(ended.cwd / "own.txt")
    assert read_crash(ended.folder) is None


@pytest.mark.anypython
def test_python_s_own_switch_for_faulthandler_wins(tmp_path: Path) -> None:
    """With PYTHONFAULTHANDLER=1 the stack goes to stderr, as without the agent."""
    texts = []
    for agent in (False, True):
        ended = end(tmp_path, "segv", agent=agent, PYTHONFAULTHANDLER="1")
        assert os.waitstatus_to_exitcode(ended.status) == -signal.SIGSEGV
        texts.append(crashed_part(ended.cwd / "stderr"))
    assert texts[0] == texts[1]
    assert "in culprit" in texts[1]


def crashed_part(path: Path) -> str:
    """What faulthandler wrote of the thread that crashed, without its number."""
    text = path.read_text()
    assert text.startswith("Fatal Python error: Segmentation fault")
    return text[text.index("Current thread") :].partition("\n")[2]


@pytest.mark.anypython
def test_start_and_stop_leave_the_hooks_as_they_were(tmp_path: Path) -> None:
    """Both excepthooks, sys.exit, faulthandler, signals and open files are those of before."""
    ended = end(tmp_path, "start_stop", agent=False)
    assert ended.seen == (0, "as before\n", "")


@pytest.mark.anypython
def test_what_has_to_stay_is_said(tmp_path: Path) -> None:
    """Leaving, the agent names what lies under the program's own hooks; else there is nothing."""
    told = end(tmp_path / "1", "detached").stdout
    assert not any(word in told for word in ("excepthook", "sys.exit", "faulthandler"))
    words = [f"after:own_{what}" for what in ("hook", "thread_hook", "exit", "signal_handler")]
    ended = end(tmp_path / "2", "detached", *words)
    assert ended.status == 0, ended.stderr
    assert [line for line in ended.stdout.splitlines() if line not in told] == [
        "a hook under the program's own sys.excepthook, which does nothing",
        "a hook under the program's own threading.excepthook, which does nothing",
        *(
            ["a function under the program's own sys.exit, which does what Python's does"]
            * bool(IN_C)
        ),
        "faulthandler under the program's own signal handlers, writing nowhere",
    ]


@pytest.mark.anypython
def test_a_program_that_handles_fatal_signals_is_told(tmp_path: Path) -> None:
    """Where it handles one of them itself, faulthandler stays off, and the card says so."""
    ended = end(tmp_path, "sigfpe", "before:own_signal_handler")
    card = ended.folder.read_card()
    assert card is not None
    assert card.problems == (
        "a fatal signal will leave no stacks: the program handles SIGFPE itself",
    )


@pytest.mark.anypython
def test_an_exception_at_the_prompt_is_no_crash(tmp_path: Path) -> None:
    """At an interactive prompt an exception ends nothing and leaves no record."""
    done = subprocess.run(
        [sys.executable, "-i", "-c", "import probing; probing.start()"],
        env=clean_env(tmp_path / "home"),
        input="1/0\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, "ZeroDivisionError" in done.stderr) == (0, True)
    (folder,) = RunDirectory(tmp_path / "home").folders()
    assert read_crash(folder) is None


@pytest.mark.anypython
def test_the_chain_of_exceptions_is_told(tmp_path: Path) -> None:
    """What an exception was raised from stands beside it, and in the note."""
    ended = end(tmp_path, "exception")
    record = read_crash(ended.folder)
    assert record is not None
    (link,) = record.chain
    assert (link.relation, link.type, link.message) == ("cause", "KeyError", "'no such key'")
    trace = last_known(ended.folder)
    assert trace is not None
    assert trace.source == "crash"
    assert trace.note is not None
    assert "it ended with an unhandled Crashed: the program's own words (at " in trace.note
    assert "before it came KeyError: 'no such key' (cause)" in trace.note


@pytest.mark.anypython
def test_a_runaway_recursion_keeps_both_ends(tmp_path: Path) -> None:
    """Of a thousand frames the innermost and the outermost are kept, and the gap is counted."""
    record = read_crash(end(tmp_path, "recursion").folder)
    assert record is not None
    assert len(record.threads[0].frames) == 200
    assert record.left_out > 500
    assert record.threads[0].frames[-1].func == "<module>"


@pytest.mark.anypython
def test_an_exception_in_a_thread_shows_the_others(tmp_path: Path) -> None:
    """The record has the thread that ended first, then the main thread that waits for it."""
    trace = last_known(end(tmp_path, "exception", "in_thread").folder)
    assert trace is not None
    assert [(t.name, t.is_main) for t in trace.threads] == [("Loader", False), ("MainThread", True)]
    assert "in_thread" in [frame.func for frame in trace.threads[1].frames]
    assert trace.note is not None
    assert "its thread Loader ended with an unhandled Crashed" in trace.note


@pytest.mark.anypython
def test_the_commands_tell_how_it_ended(program: Callable[..., Target]) -> None:
    """`list --dead` says how it ended in a sentence, and `backtrace` shows where."""
    target = program("crashes", "segv", PROBING="all")
    assert target.process.wait(DEADLINE_S) == -signal.SIGSEGV
    listed = target.run("list", "--dead", "--format", "json")
    assert "it was ended by SIGSEGV (Segmentation fault) at " in listed.stdout
    shown = target.run(str(target.pid), "backtrace")
    assert shown.returncode == 0, shown.stderr
    assert "culprit" in shown.stdout
    assert "SIGSEGV" in shown.stdout + shown.stderr


@pytest.mark.torch
def test_torch_out_of_memory(tmp_path: Path) -> None:
    """The exception is recorded by torch's name, with what it says of the device's memory."""
    words = ("out_of_memory",)
    without, ended = end(tmp_path, *words, agent=False), end(tmp_path, *words)
    assert ended.seen == without.seen
    trace = last_known(ended.folder)
    assert trace is not None
    assert trace.note is not None
    assert "an unhandled torch.OutOfMemoryError: CUDA out of memory. Tried" in trace.note
    assert (
        "device memory: asked for 2.00 GiB, on GPU 0, in all 79.10 GiB, free 1.06 GiB" in trace.note
    )


@pytest.mark.torch
def test_the_modules_that_a_killed_process_was_in(program: Callable[..., Target]) -> None:
    """After kill -9 the open rows say which module it was in, in which step."""
    target = program("hung", "forward")
    target.wait_for_output("ready")
    wait_until(lambda: innermost(target.folder) == "Stuck (forward)", "the open row")
    target.kill()
    trace = last_known(target.folder)
    assert trace is not None
    assert trace.source == "open rows"
    (thread,) = trace.threads
    assert (thread.thread_id, thread.is_main, thread.name) == (target.pid, True, "MainThread")
    assert [(f.func, f.file, f.kind) for f in thread.frames] == [
        ("Stuck (forward)", "Stuck", "module"),
        ("step 2", "Linear", "module"),
    ]
    assert trace.note is not None
    assert "module calls that had not returned" in trace.note
    assert "in step 2" in trace.note


def innermost(folder: ProcessFolder) -> str | None:
    """The innermost open call of a process."""
    trace = last_known(folder)
    return trace.threads[0].frames[0].func if trace else None


@pytest.mark.torch
def test_a_training_that_ended_well_has_no_last_stack(program: Callable[..., Target]) -> None:
    """The row of the step that was to come next is no sign of a crash."""
    target = program("exits", "normal")
    assert target.process.wait(DEADLINE_S) == 0
    assert last_known(target.folder) is None


FORWARD, OPTIMIZER, STEP = map(STAGES.index, ("forward", "optimizer", "step"))


def recorded(tmp_path: Path, writer: RingWriter) -> ProcessFolder:
    """The run folder of an ended process with that record."""
    folder = RunDirectory(tmp_path / "home").create_folder(2**22 + 1, 5)
    writer.save(folder.ring("torch_trace"))
    folder.names.write_bytes(encode_names(("blocks.0", "Block", "GPT")))
    return folder


def test_a_row_that_was_left_open_by_mistake_is_passed_over(tmp_path: Path) -> None:
    """A later call at the same depth or further out shows that a call is over."""
    writer = trace_writer()
    row = {"thread_id": 9, "stage": FORWARD, "module": 1, "class": 2, "root": 3, "step": 4}
    writer.open(**row, depth=0, start_ns=100)
    writer.open(**row, depth=1, start_ns=200)  # over, as the next one shows
    writer.write(**row, depth=1, start_ns=300)
    inner = writer.open(**{**row, "module": 2}, depth=1, start_ns=400)
    writer.write(**row, depth=2, start_ns=500, duration_ns=1_000_000_100)
    writer.open(**{**row, "thread_id": 8}, depth=0, start_ns=150)
    assert inner == 4
    trace = last_known(recorded(tmp_path, writer))
    assert trace is not None
    assert [(t.thread_id, [f.func for f in t.frames]) for t in trace.threads] == [
        (8, ["blocks.0 (forward)"]),
        (9, ["Block (forward)", "blocks.0 (forward)"]),
    ]


def test_an_optimizer_in_the_middle_of_its_step_is_shown(tmp_path: Path) -> None:
    """Also with a module call inside, as of LBFGS, and with the step around both."""
    writer = trace_writer()
    row = {"thread_id": 9, "module": 1, "class": 2, "root": 3, "step": 4}
    writer.open(**row, stage=STEP, depth=0, start_ns=100)
    writer.open(**row, stage=OPTIMIZER, depth=0, start_ns=200)
    writer.open(**row, stage=FORWARD, depth=0, start_ns=300)
    trace = last_known(recorded(tmp_path, writer))
    assert trace is not None
    funcs = [frame.func for frame in trace.threads[0].frames]
    assert funcs == ["blocks.0 (forward)", "blocks.0 (optimizer)", "step 4"]


def test_rows_that_name_nothing_known_are_shown_as_such(tmp_path: Path) -> None:
    """A number without a name and a stage of a later version give a question mark."""
    writer = trace_writer()
    writer.open(thread_id=9, stage=77, module=99, depth=0, start_ns=100)
    trace = last_known(recorded(tmp_path, writer))
    assert trace is not None
    assert trace.threads[0].frames[0].func == "? (?)"


def test_an_exception_that_was_only_shown_is_no_end(tmp_path: Path) -> None:
    """When steps began after it, an unhandled exception on record is not how it ended."""
    folder = recorded(tmp_path, trace_writer(rows=1))
    folder.exception.write_bytes(encode(RECORD))
    assert read_crash(folder) == RECORD
    steps = RingWriter(STEPS, capacity=8)
    steps.open(step=1, start_ns=100)
    steps.save(folder.ring("steps"))
    assert read_crash(folder) is None


@pytest.mark.parametrize("set_back_ns", [2_000_000_000, -2_000_000_000])
def test_a_clock_that_was_set_does_not_tell_whether_it_went_on(
    tmp_path: Path, set_back_ns: int
) -> None:
    """The exception and the step are put in order by the clock that nobody sets."""
    folder = recorded(tmp_path, trace_writer(rows=1))
    began_ns = 50_000_000_000
    steps = RingWriter(STEPS, capacity=8)
    steps.open(step=7, start_ns=began_ns)
    steps.save(folder.ring("steps"))
    step = last_step(folder)
    assert step is not None
    raised_ns = step.values["start_ns"] - set_back_ns
    record = dataclasses.replace(RECORD, when_ns=raised_ns, step=7, monotonic_ns=began_ns + 1)
    folder.exception.write_bytes(encode(record))
    assert read_crash(folder) == record
    steps.open(step=8, start_ns=began_ns + 2)
    steps.save(folder.ring("steps"))
    assert read_crash(folder) is None


RECORD = CrashRecord(
    when_ns=1_600_000_000_000_000_000, kind="exception", type="ValueError", message="x", threads=()
)


def test_all_that_faulthandler_writes_is_understood() -> None:
    """Names in ASCII are undone; native frames, marks and the agent's own thread are left out."""
    record = parse_fatal(FAULTHANDLER_TEXT, pid=77, when_ns=5)
    assert record is not None
    assert (record.type, record.message, record.when_ns) == ("SIGSEGV", "Segmentation fault", 5)
    main, worker = record.threads
    assert (main.name, main.thread_id, main.is_main) == ("MainThread", 77, True)
    assert [(f.func, f.file, f.lineno) for f in main.frames] == [
        ("st\N{PRIME}p", "/job/tr\xe4in.py", 7),
        ("???", "???", 0),
        ("<module>", "/job/tr\xe4in.py", 9),
    ]
    assert (worker.name, worker.thread_id, worker.frames) == ("w\xf6rker", 0, ())


def test_a_second_signal_while_the_first_is_written_does_not_hide_it() -> None:
    """The first report counts; the threads of the second are not mixed into it."""
    second = FAULTHANDLER_TEXT.replace(b"Segmentation fault", b"Aborted").partition(b"\n")[2]
    whole = parse_fatal(FAULTHANDLER_TEXT, pid=77, when_ns=5)
    assert parse_fatal(FAULTHANDLER_TEXT + second, pid=77, when_ns=5) == whole


def test_a_crash_while_python_was_torn_down_leaves_the_exception(tmp_path: Path) -> None:
    """A fatal signal without a single frame does not hide the exception before it."""
    folder = RunDirectory(tmp_path / "home").create_folder(2**22 + 1, 5)
    folder.exception.write_bytes(encode(RECORD))
    folder.fatal_signal.write_bytes(b"Fatal Python error: Aborted\n\n<no Python frame>\n")
    assert read_crash(folder) == RECORD
    folder.fatal_signal.write_bytes(FAULTHANDLER_TEXT)
    fatal = read_crash(folder)
    assert fatal is not None
    assert fatal.type == "SIGSEGV"
    folder.exception.unlink()
    folder.fatal_signal.write_bytes(b"Fatal Python error: Aborted\n")
    aborted = read_crash(folder)
    assert aborted is not None
    assert crashes.describe(aborted).startswith("it was ended by SIGABRT (Aborted) at ")


def test_a_thread_s_exception_does_not_hide_where_the_others_were(tmp_path: Path) -> None:
    """With open rows on record it is a sentence in the note; alone, its stacks are shown."""
    folder = recorded(tmp_path, trace_writer())
    threads = (ThreadStack(thread_id=3, name="Loader", is_main=False, frames=()),)
    record = dataclasses.replace(RECORD, kind="thread exception", threads=threads)
    folder.thread_exception.write_bytes(encode(record))
    alone = last_known(folder)
    assert alone is not None
    assert (alone.source, alone.threads) == ("crash", threads)
    writer = trace_writer()
    writer.open(thread_id=9, stage=FORWARD, module=1, depth=0, start_ns=100)
    trace = last_known(recorded(tmp_path, writer))
    assert trace is not None
    assert (trace.source, trace.threads[0].frames[0].func) == ("open rows", "blocks.0 (forward)")
    assert trace.note is not None
    assert "its thread Loader ended with an unhandled ValueError: x (at " in trace.note


def test_who_is_killed_between_two_steps_was_behind_the_last(tmp_path: Path) -> None:
    """Nothing is open on its record then; one that has closed in an orderly way has no socket."""
    writer = trace_writer()
    step = {**trace_values(4), "stage": STAGES.index("step"), "step": 41, "depth": 0}
    writer.write(**step)
    folder = recorded(tmp_path, writer)
    assert last_known(folder) is None
    folder.socket.touch()
    trace = last_known(folder)
    assert trace is not None
    assert trace.threads == ()
    assert trace.note is not None
    assert "nothing is open on its record: step 41 was the last, and had ended as" in trace.note
    assert not has_last_stack(folder)
    shown = render_backtrace(trace)
    assert shown.count("step 41") == 1
    assert "no Python thread was seen" not in shown


def test_who_is_killed_long_after_a_step_is_not_said_to_be_in_it(tmp_path: Path) -> None:
    """What was written later, and the SIGTERM, tell how long the process went on."""
    writer = trace_writer()
    row = {"thread_id": 9, "module": 1, "class": 2, "root": 3, "step": 4}
    writer.open(**row, stage=STEP, depth=0, start_ns=100)
    folder = recorded(tmp_path, writer)
    folder.socket.touch()
    memory = RingWriter(MEMORY, capacity=8)
    memory.write(step=4, time_ns=300_000_000_100)
    memory.save(folder.ring("memory"))
    known = last_known(folder)
    assert known is not None
    assert known.note is not None
    assert "no module call is open on its record, only step 4, which had begun 5 min" in known.note
    folder.terminated.write_bytes(b"0 d\n")
    ends_ns = 300_000_000_100 + CLOCK_OFFSET_NS
    os.utime(folder.terminated, ns=(ends_ns + 40 * 10**9,) * 2)
    known = last_known(folder)
    assert known is not None
    assert known.note is not None
    assert known.note.endswith("; 40 s after that it was asked to end by a SIGTERM")


@pytest.mark.parametrize(("began_ns", "is_behind"), [(None, True), (400, True), (250, False)])
def test_a_step_of_which_nothing_has_begun_is_none(
    began_ns: int | None, *, is_behind: bool, tmp_path: Path
) -> None:
    """The agent opens the next one as one ends; calls of an evaluation are no part of it."""
    writer = trace_writer()
    row = {"thread_id": 9, "module": 1, "class": 2, "root": 3}
    writer.write(**row, step=41, stage=STEP, depth=0, start_ns=100, duration_ns=50)
    writer.open(**row, step=42, stage=STEP, depth=0, start_ns=150)
    if began_ns is not None:
        writer.write(**row, step=42, stage=FORWARD, depth=0, start_ns=began_ns, duration_ns=9)
    folder = recorded(tmp_path, writer)
    folder.socket.touch()
    evaluations = RingWriter(EVALUATIONS, capacity=8)
    evaluations.write(step=42, start_ns=300, duration_ns=900)
    evaluations.save(folder.ring("evaluations"))
    known = last_known(folder)
    assert known is not None
    assert known.note is not None
    last = "nothing is open on its record: step 41 was the last, and had ended 1.05 us before"
    assert (last in known.note, known.threads == ()) == (is_behind, is_behind)
    crash = dataclasses.replace(RECORD, step=42, monotonic_ns=2_000_000_150)
    folder.exception.write_bytes(encode(crash))
    known = last_known(folder)
    assert known is not None
    assert known.note is not None
    words = "its last step, 41, had ended 2 s before" if is_behind else "it was in step 42"
    assert words in known.note


def test_an_exception_in_a_step_is_said_to_be_in_it(tmp_path: Path) -> None:
    """Where its record does not tell more than the crash itself."""
    folder = recorded(tmp_path, trace_writer())
    folder.exception.write_bytes(encode(dataclasses.replace(RECORD, step=7)))
    known = last_known(folder)
    assert known is not None
    assert known.note is not None
    assert "it was in step 7" in known.note


def changed(data: bytes) -> st.SearchStrategy[bytes]:
    """A file's bytes, cut, and with some bytes in it replaced."""
    piece = st.tuples(st.integers(0, len(data)), st.binary(max_size=12))
    return st.tuples(st.integers(0, len(data)), st.lists(piece, max_size=4)).map(
        lambda change: _replace(data[: change[0]], change[1])
    )


def _replace(data: bytes, pieces: list[tuple[int, bytes]]) -> bytes:
    for at, piece in pieces:
        data = data[:at] + piece + data[at + len(piece) :]
    return data


@given(
    st.one_of(changed(FAULTHANDLER_TEXT), st.binary()),
    st.one_of(changed(encode(RECORD)), st.binary()),
)
def test_any_bytes_give_a_record_or_none(
    tmp_path_factory: pytest.TempPathFactory, fatal: bytes, exception: bytes
) -> None:
    """Whatever is in the files, reading them gives a record that can be told, or None."""
    folder = RunDirectory(tmp_path_factory.getbasetemp() / "fuzz").create_folder(2**22 + 1, 5)
    folder.fatal_signal.write_bytes(fatal)
    folder.exception.write_bytes(exception)
    record = read_crash(folder)
    assert record is None or crashes.describe(record).startswith("it")
    trace = last_known(folder)
    assert (trace is None) == (record is None)
    if trace is not None:
        encode(trace)


def test_an_interrupt_ends_a_process_though_code_is_run_meanwhile(tmp_path: Path) -> None:
    """Python exits with 1 once any thread has run text, as ours do that are just importing."""
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import atexit, os, probing\n"
        "probing.connect(os.getpid()).backtrace()\n"
        "atexit.register(exec, '0')\n"
        "raise KeyboardInterrupt\n"
    )
    argv = [sys.executable, "-m", "probing._run", str(script)]
    env = clean_env(tmp_path / "home", PROBING="all")
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, timeout=DEADLINE_S)
    assert done.returncode == -signal.SIGINT, done.stderr


def test_a_second_interrupt_while_the_first_is_written_down_changes_nothing(tmp_path: Path) -> None:
    """The program's own hook is called for the first, and the process ends by it."""
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import os, signal, sys\n"
        "sys.excepthook = lambda kind, value, traceback: print('own hook:', kind.__name__)\n"
        "import probing\n"
        "probing.start()\n"
        "from probing.agent.crash import crashes\n"
        "def interrupted(record):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return []\n"
        "crashes.other_threads = interrupted\n"
        "raise KeyboardInterrupt\n"
    )
    argv = [sys.executable, str(script)]
    env = clean_env(tmp_path / "home", PROBING="0")
    done = subprocess.run(
        argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        -signal.SIGINT,
        "own hook: KeyboardInterrupt\n",
        "",
    )
    (folder,) = RunDirectory(tmp_path / "home").folders()
    record = read_crash(folder)
    assert record is not None
    assert record.type == "KeyboardInterrupt"


WITHOUT_AGENT = {
    "its agent was taken out of it": (
        "probing.start(); probing.stop()",
        "probing.start(); lifecycle.detach(keep_record=True)",
    ),
    "the agent did not start: OSError: full": (
        "try: raise OSError('full')\nexcept OSError: lifecycle.report_failed_start()",
    ),
}


@pytest.mark.parametrize(
    ("why", "way"), [(why, way) for why, ways in WITHOUT_AGENT.items() for way in ways]
)
def test_an_end_that_no_agent_has_seen_is_not_called_orderly(
    tmp_path: Path, why: str, way: str
) -> None:
    """A process without a socket has ended well only if its agent was there at the end."""
    script = tmp_path / "left.py"
    script.write_text(
        "import os, signal, probing\nfrom probing.agent import lifecycle\n"
        f"{way}\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = clean_env(tmp_path / "home", PROBING="0")
    process = subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, env=env, stderr=subprocess.PIPE
    )
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        (folder,) = RunDirectory(tmp_path / "home").folders()
        waited_for = ending_of(folder, [])
    finally:
        process.communicate(timeout=DEADLINE_S)
    assert waited_for is not None
    assert waited_for.certain == (f"It ended with signal SIGKILL: {why}.",)
    ending = ending_of(folder, [])
    assert ending is not None
    assert ending.certain == (f"How it ended nothing tells: {why}.",)
