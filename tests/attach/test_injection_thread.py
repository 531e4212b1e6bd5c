"""A borrowed thread is given back as it was, and what was injected runs once the lock is free."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import capstone
import pytest

from probing.attach.injectors import thread
from probing.attach.injectors.borrowing import remote_call, stubs
from probing.attach.injectors.borrowing.machines import AARCH64, MACHINES, X86_64, Machine
from probing.attach.injectors.borrowing.memory import PAGE, Mapping, find_interpreter
from probing.attach.injectors.borrowing.remote_call import Errand, send
from probing.attach.injectors.borrowing.tracing import TracedThread, all_stopped
from probing.attach.injectors.borrowing.victims import Waiting, choose, waiting_threads
from probing.attach.injectors.holder import run_in_holder
from probing.attach.injectors.refusal import CannotInject, StillAway
from probing.linux import process
from tests.attach.kills import as_soon_as_possible
from tests.harness.targets import DEADLINE_S, program_path, wait_until

pytestmark = [pytest.mark.anypython, pytest.mark.usefixtures("patient")]


class Program:
    """A bare Python process, without any agent."""

    def __init__(self, name: str, mode: str, log: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-X", "utf8", str(program_path(name)), mode],
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        self.pid = self.process.pid
        wait_until(lambda: "ready" in self.output, "ready")

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    def inject(self, code: str, timeout_s: float = DEADLINE_S) -> None:
        """Inject code by a borrowed thread, as soon as one can be borrowed."""

        def inject() -> None:
            with contextlib.closing(find_interpreter(self.pid)) as interpreter:
                thread.inject(interpreter, code, timeout_s=timeout_s)

        as_soon_as_possible(inject)

    def state(self) -> str:
        """The kernel's letter for the state of the main thread."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs of ``tests/programs``."""
    programs: list[Program] = []

    def begin(name: str, mode: str) -> Program:
        program = Program(name, mode, tmp_path / f"{name}-{mode}-{len(programs)}.log")
        programs.append(program)
        return program

    yield begin
    for program in programs:
        program.process.kill()
        program.process.wait()


def touch(path: Path) -> str:
    """Code that leaves a file, and no name behind."""
    return f"open({str(path)!r}, 'w').close()\n"


@pytest.mark.parametrize(
    "mode",
    [
        *("sleep", "c_sleep", "lock", "event", "queue", "socket", "pipe", "select", "main_done"),
        *("file_lock", "record_lock", "open_fifo"),
    ],
)
def test_the_code_runs_while_the_main_thread_waits(
    start: Callable[..., Program], tmp_path: Path, mode: str
) -> None:
    """Whatever the main thread waits for, the code runs, and the wait and the process go on."""
    program = start("stuck", mode)
    mark = tmp_path / "ran"
    wait_until(lambda: program.state() == "S", "the wait")
    threads = thread_count(program.pid)
    sizes = []
    for _ in range(2):
        for _ in range(5):
            program.inject(touch(mark))
            wait_until(mark.exists, "the code")
            mark.unlink()
            # One that has not ended yet keeps its stack, and the next would need another.
            wait_until(lambda: thread_count(program.pid) == threads, "the new thread to end")
        wait_until(lambda: not our_mappings(program.pid), "what was mapped to be gone")
        sizes.append(len(memory_map(program.pid)))
    assert program.process.poll() is None
    assert "returned" not in program.output
    # The C library keeps the stack and the arena of the first new thread for the next; what lies
    # side by side may become one.
    assert sizes[1] <= sizes[0]


def test_a_main_thread_that_waits_for_others_is_borrowed(start: Callable[..., Program]) -> None:
    """In `Thread.join` it waits for a lock that the first thread's arena may begin with."""
    program = start("stuck", "join")

    def are_all_borrowable() -> bool:
        with contextlib.closing(find_interpreter(program.pid)) as interpreter:
            waiting = waiting_threads(program.pid)
            victims = choose(waiting, X86_64, interpreter.maps)
        return len(waiting) == 2 and victims == sorted(found.thread_id for found in waiting)

    wait_until(are_all_borrowable, "both threads wait, where they can be borrowed")


def memory_map(pid: int) -> list[str]:
    """The lines of a process's memory map."""
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


def thread_count(pid: int) -> int:
    """How many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))


def our_mappings(pid: int) -> list[str]:
    """Code that came from no file: nobody else makes such in these programs."""
    return [
        line
        for line in memory_map(pid)
        if " r-xp " in line and line.split()[4] == "0" and "[" not in line
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("c_sleep", "0"),
        ("py_sleep", "True"),
        ("read", "(b'word', 0)"),
        ("poll", "([], [], [])"),
        ("epoll", "0"),
        ("floats", "10.48067821722932"),
    ],
)
def test_a_stopped_thread_never_notices(
    start: Callable[..., Program], tmp_path: Path, call: str, result: str
) -> None:
    """System calls in which a thread was borrowed, or only stopped, give what they always give."""
    program = start("borrowed", call)
    mark = tmp_path / "ran"
    for _ in range(20):
        program.inject(touch(mark))
        wait_until(mark.exists, "the code")
        mark.unlink()
        with all_stopped(program.pid):
            pass
    done = len(program.output.split("\n"))
    wait_until(lambda: len(program.output.split("\n")) > done + 1, "another call")
    assert set(program.output.strip().split("\n")) == {"ready", result}


@pytest.mark.slow
def test_no_signal_is_lost(start: Callable[..., Program]) -> None:
    """Every signal that comes while threads are borrowed is handled, once."""
    program = start("borrowed", "signals")
    for sent in range(1, 41):
        os.kill(program.pid, signal.SIGUSR1)
        program.inject("pass\n")
        os.kill(program.pid, 0)
        wait_until(partial(has_handled, program, sent), f"signal {sent}")
    assert handled(program) == 40


def has_handled(program: Program, count: int) -> bool:
    """Whether the program has printed that many."""
    return handled(program) >= count


def handled(program: Program) -> int:
    """The newest count that the program has printed."""
    words = program.output.rpartition("\n")[0].split()
    return int(words[-1]) if words[-1].isdecimal() else 0


def test_code_waits_for_the_lock_without_harm(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    """While a C call keeps the interpreter lock the code waits, and the process is as it was."""
    program = start("stuck", "gil_sleep")
    wait_until(lambda: program.state() == "S", "the wait")
    program.inject(touch(tmp_path / "ran"))
    wait_until(lambda: len(os.listdir(f"/proc/{program.pid}/task")) == 2, "the new thread")
    wait_until(lambda: set(states(program.pid)) == {"S"}, "both to wait")
    assert not (tmp_path / "ran").exists()
    assert "returned" not in program.output


def test_code_can_run_in_the_thread_that_holds_the_lock(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    """The last resort runs code while nobody else can, and the process lives on."""
    program = start("stuck", "gil_sleep")
    wait_until(lambda: program.state() == "S", "the wait")
    with contextlib.closing(find_interpreter(program.pid)) as interpreter:
        run_in_holder(interpreter, touch(tmp_path / "ran"), thread_id=program.pid)
    assert (tmp_path / "ran").exists()
    assert program.process.poll() is None


def test_a_thread_that_runs_is_not_borrowed(start: Callable[..., Program]) -> None:
    """Where the only thread runs, both ways refuse and say so."""
    program = start("stuck", "gil_spin")
    wait_until(lambda: program.state() == "R", "the loop")
    with contextlib.closing(find_interpreter(program.pid)) as interpreter:
        with pytest.raises(CannotInject, match="can be borrowed from"):
            thread.inject(interpreter, "pass\n")
        with pytest.raises(CannotInject, match="does not wait in a system call"):
            run_in_holder(interpreter, "pass\n", thread_id=program.pid)
    assert program.process.poll() is None


@pytest.mark.slow
def test_a_call_that_does_not_return_is_given_up(start: Callable[..., Program]) -> None:
    """Beside a thread in the allocator the code runs or is refused; nobody is hurt."""
    program = start("stuck", "in_malloc")
    wait_until(lambda: program.state() == "R", "the allocator")
    for _ in range(5):
        with (
            contextlib.closing(find_interpreter(program.pid)) as interpreter,
            contextlib.suppress(CannotInject),
        ):
            thread.inject(interpreter, "pass\n", timeout_s=0.2)
    before = cpu_ticks(program.pid)
    wait_until(lambda: cpu_ticks(program.pid) > before + 5, "the main thread to go on")


BUSY, ASLEEP, BRIEF = range(3)
"""The functions of the program `errands`."""


def send_to(program: Program, function: int, *, timeout_s: float) -> int:
    """Have the main thread call a function of its program; returns what that gives."""
    errand = Errand(
        function=int(program.output.split()[function]),
        argument=0,
        then=0,
        payload=b"",
        data_size=PAGE,
        map_size=2 * PAGE,
        on_own_stack=True,
    )
    with contextlib.closing(find_interpreter(program.pid)) as interpreter:
        return send(interpreter, program.pid, errand, timeout_s=timeout_s).result


def send_busy(program: Program) -> int:
    """Have it call `busy`, which takes too long; a call given up before it began is none."""
    while True:
        begun = program.output.count("begun")
        try:
            return send_to(program, BUSY, timeout_s=0.2)
        except StillAway:
            raise
        except CannotInject:
            if program.output.count("begun") > begun:
                raise


def is_back(program: Program) -> bool:
    """Whether the main thread waits as it did, and lets signals through."""
    (waiting,) = waiting_threads(program.pid)
    is_free = int(process.status(program.pid)["SigBlk"], 16) == 0
    return waiting.state == "S" and waiting.number != X86_64.futex and is_free


@pytest.mark.slow
def test_a_call_is_not_given_up_in_the_middle_of_its_work(start: Callable[..., Program]) -> None:
    """A thread that computes, maybe with a lock of its own, comes late, and with the lock given."""
    program = start("errands", "")
    wait_until(lambda: is_back(program), "the wait")
    for _ in range(2):
        assert send_busy(program) == 7
    assert program.output.count("through") == 2
    wait_until(lambda: is_back(program), "the wait again")


def test_a_call_that_waits_for_a_lock_is_given_up(start: Callable[..., Program]) -> None:
    """It has nothing yet that anybody waits for, and may never get it."""
    program = start("errands", "")
    wait_until(lambda: is_back(program), "the wait")
    with pytest.raises(CannotInject, match="did not stop within"):
        send_to(program, ASLEEP, timeout_s=0.2)
    wait_until(lambda: is_back(program), "the wait again")


def test_a_call_that_has_ended_is_not_given_up(
    start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is up when the thread is on its way back already: what came of it is told."""
    wait, late = remote_call._Trip._wait_marked, list[int]()

    def wait_until_called(trip: remote_call._Trip, timeout_s: float) -> None:
        if late:
            wait(trip, timeout_s)
            return
        stub = trip._machine.stub
        while not stub.called <= trip._program() - trip._code < stub.leave:
            trip._thread.go_on(to_next_call=True)
            trip._thread.wait_stopped(DEADLINE_S)
        late.append(trip._program())
        trip._thread.go_on(to_next_call=True)
        raise CannotInject("its time is up")

    monkeypatch.setattr(remote_call._Trip, "_wait_marked", wait_until_called)
    program = start("errands", "")
    wait_until(lambda: is_back(program), "the wait")
    assert send_to(program, BRIEF, timeout_s=DEADLINE_S) == 7
    wait_until(lambda: is_back(program), "the wait again")


@pytest.mark.slow
def test_a_thread_that_is_busy_for_long_comes_back_alone(
    start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left to finish, and told of as one that does."""
    monkeypatch.setattr(remote_call, "_LATE_S", 0.2)
    program = start("errands", "")
    wait_until(lambda: is_back(program), "the wait")
    with pytest.raises(StillAway, match=f"thread {program.pid} is still busy"):
        send_busy(program)
    wait_until(lambda: is_back(program), "the wait again")
    assert "through" in program.output


def cpu_ticks(pid: int) -> int:
    """Processor time that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_all_threads_go_on_after_a_stop(start: Callable[..., Program]) -> None:
    """While all are stopped none runs; a process that is gone is a refusal."""
    program = start("stuck", "lock")
    for _ in range(20):
        with all_stopped(program.pid):
            assert set(states(program.pid)) == {"t"}
    wait_until(lambda: set(states(program.pid)) == {"S"}, "both threads to wait again")
    program.process.kill()
    program.process.wait()
    with pytest.raises(CannotInject, match="ended"), all_stopped(program.pid):
        pass


def states(pid: int) -> list[str]:
    """The state letters of all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]


def test_a_thread_that_may_not_be_traced_is_a_refusal(start: Callable[..., Program]) -> None:
    """A second tracer is told why, and the first is not disturbed."""
    program = start("stuck", "sleep")
    with all_stopped(program.pid):
        child = (
            "import sys; from probing.attach.injectors.borrowing.tracing import TracedThread;"
            "from probing.attach.injectors.refusal import CannotInject\n"
            f"try: TracedThread({program.pid}, {program.pid}).stop()\n"
            "except CannotInject as error: sys.exit(error.reason)"
        )
        done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True)
    assert f"thread {program.pid} cannot be traced (Operation not permitted)" in done.stderr
    assert TracedThread(program.pid, program.pid).is_stopped is False


MAPS = (
    Mapping(0x1000, 0x2000, "rw-p", 0, "/usr/lib/libc.so.6"),
    Mapping(0x3000, 0x4000, "rw-p", 0, "/usr/lib/libjemalloc.so.2"),
    Mapping(0x5000, 0x6000, "rw-p", 0, "/usr/lib/libother.so"),
)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_only_harmless_waits_are_borrowed_from(machine: Machine) -> None:
    """Threads that run, are stopped, or may be waiting for the allocator are left alone."""
    reading = min(machine.harmless_calls - {machine.futex})
    threads = [
        Waiting(30, "S", machine.futex, 0x7F00_0012_3450),  # somebody's lock
        Waiting(20, "S", reading, 0),
        Waiting(10, "S", machine.futex, 0x5010),
        Waiting(11, "R", reading, 0),
        Waiting(12, "D", reading, 0),
        Waiting(13, "S", -1, 0),
        Waiting(14, "S", 999, 0),
        Waiting(15, "S", machine.futex, 0x1010),  # libc's
        Waiting(16, "S", machine.futex, 0x3010),  # another allocator's
        Waiting(17, "S", machine.futex, 0x7F00_0400_0030),  # at the head of an arena
        Waiting(18, "t", reading, 0),
        Waiting(19, "S", machine.futex, 0x7F00_0400_08D0),  # the first that a program got from it
    ]
    assert choose(threads, machine, MAPS) == [10, 19, 20, 30]


@pytest.mark.parametrize("machine", MACHINES.values(), ids=lambda machine: machine.name)
def test_registers_survive_packing(machine: Machine) -> None:
    """What is read from the kernel is what is written back; negative numbers wrap."""
    data = struct.pack(f"<{len(machine.registers)}Q", *range(len(machine.registers)))
    values = machine.unpack(data + b"more")
    assert machine.pack(values) == data
    values[machine.program] = -1
    assert machine.unpack(machine.pack(values))[machine.program] == (1 << 64) - 1
    named = {machine.frame, machine.call, machine.first, machine.result, machine.stack}
    assert named | {machine.program} <= set(machine.registers)


X86_LINE = re.compile(r'^ +"([0-9a-f]+)"  # (.*)$', re.MULTILINE)
AARCH64_LINE = re.compile(r"^ +0x([0-9A-F]{8}),  # (.*)$", re.MULTILINE)


def disassemble(machine: Machine, code: bytes) -> dict[int, str]:
    """The instructions by their place, as the processor's manual writes them."""
    if machine is AARCH64:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    found = list(engine.disasm(code, 0))
    assert sum(instruction.size for instruction in found) == len(code)
    return {i.address: f"{i.mnemonic} {i.op_str}".strip() for i in found}


def test_the_instructions_are_those_meant() -> None:
    """Read back by a disassembler they are what is written beside them."""
    source = Path(stubs.__file__).read_text("utf-8")
    for machine, line in ((X86_64, X86_LINE), (AARCH64, AARCH64_LINE)):
        meant = [text for _, text in line.findall(source)]
        assert list(disassemble(machine, machine.stub.code).values()) == meant


def test_a_borrowed_thread_comes_back_without_help() -> None:
    """No trap is on its way, and its last instructions take all registers from the frame."""
    for machine, call, way_back in (
        (
            X86_64,
            "call qword ptr [rbx + 0x28]",
            [*(f"pop {name}" for name in stubs._X86_ORDER[:15]), "iretq"],
        ),
        (AARCH64, "blr x9", ["mov x8, #0x8b", "svc #0"]),
    ):
        stub = machine.stub
        read = disassemble(machine, stub.code)
        assert {stub.leave, stub.marked, stub.here, stub.body, stub.nothing} <= set(read)
        assert read[max(at for at in read if at < stub.called)] == call
        assert not [text for text in read.values() if text.startswith(("int", "brk"))]
        before = max(at for at in read if at < stub.marked)
        assert read[before] in ("syscall", "svc #0")
        home = [text for at, text in sorted(read.items()) if stub.marked < at < stub.here]
        assert home == way_back
    assert "xrstor64 ptr [rbx + 0x100]" in disassemble(X86_64, X86_64.stub.code).values()


def test_the_way_back_makes_an_interrupted_call_once_more() -> None:
    """A thread that nobody puts back begins its call anew, or resumes it, or goes on behind it."""
    registers = dict.fromkeys(X86_64.registers, 0) | {"orig_rax": 202, "rip": 0x1002}
    for result, number, program in (
        (-512, 202, 0x1000),
        (-513, 202, 0x1000),
        (-514, 202, 0x1000),
        (-516, 219, 0x1000),
        (7, 7, 0x1002),
        (-4, (1 << 64) - 4, 0x1002),
    ):
        frame = X86_64.way_back({**registers, "rax": result % (1 << 64)}, b"vectors", 0)
        words = dict(zip(stubs._X86_ORDER, struct.unpack_from("<20Q", frame), strict=True))
        assert (words["rax"], words["rip"]) == (number, program)
        assert stubs.WORDS.size + frame.index(b"vectors") == 0x100
