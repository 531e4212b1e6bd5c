"""Code gets into CPython's own queue and runs; what is not as expected is refused unharmed."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probing.attach.injectors import pending
from probing.attach.injectors.borrowing.memory import Interpreter, Slack, find_interpreter
from probing.attach.injectors.layouts import LAYOUTS, layout_for
from probing.attach.injectors.refusal import CannotInject
from tests.harness.targets import DEADLINE_S, program_path, wait_until

VERSION = (sys.version_info[0], sys.version_info[1])
HAS_MAIN_QUEUE = VERSION >= (3, 12)

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.usefixtures("patient"),
    pytest.mark.skipif(max(LAYOUTS) < VERSION, reason="newer Pythons have another way in"),
]


class Program:
    """A bare Python process with several threads."""

    def __init__(self, folder: Path, mode: str, python: str = sys.executable) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        self._numbers = itertools.count()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, "-I", str(program_path("busy_threads")), mode],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_for_output("ready")
        if mode == "blocked":
            wait_until(self.is_blocked, "the main thread to read")

    def is_blocked(self) -> bool:
        """Whether its main thread is in the call that reads from its standard input."""
        words = Path(f"/proc/{self.process.pid}/syscall").read_text().split()
        return len(words) > 1 and words[1] == "0x0"

    @property
    def output(self) -> str:
        """All it has printed so far."""
        return self.log.read_text("utf-8", "replace")

    def wait_for_output(self, text: str) -> None:
        """Wait until it has printed a text; it must not have ended."""

        def is_there() -> bool:
            assert self.process.poll() is None, self.output
            return text in self.output

        wait_until(is_there, text)

    def open(self) -> contextlib.closing[Interpreter]:
        """Find its interpreter."""
        return contextlib.closing(find_interpreter(self.process.pid))

    def wake(self) -> None:
        """End the wait of a blocked main thread."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"x")
        self.process.stdin.flush()
        self.wait_for_output("awake")

    def runs_code(self, *, any_thread: bool = False) -> pending.PlacedCall:
        """Inject code, wait for what it does, and clear it away."""
        mark = self.folder / f"mark{next(self._numbers)}"
        with self.open() as interpreter:
            code = f"try:open({str(mark)!r},'w').close()\nexcept:pass\n"
            placed = pending.inject(interpreter, code, any_thread=any_thread)
            wait_until(mark.exists, "the code has run")
            assert placed.is_taken()
            placed.wipe()
        assert self.process.poll() is None, self.output
        return placed

    def end(self) -> None:
        """Kill and reap it."""
        self.process.kill()
        self.process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Program]]:
    """Starts programs; their folders have short names, since code is limited in length."""
    programs: list[Program] = []

    def begin(mode: str, python: str = sys.executable) -> Program:
        programs.append(Program(tmp_path_factory.mktemp("p"), mode, python))
        return programs[-1]

    yield begin
    for program in programs:
        program.end()


def pythons_at_hand() -> dict[tuple[int, int], str]:
    """An interpreter that runs, of each release whose layout is known."""
    found = {}
    for major, minor in LAYOUTS:
        release = f"{major}.{minor}"
        own = sorted(Path.home().glob(f".pyenv/versions/{release}.*/bin/python"))
        for python in filter(None, [shutil.which(f"python{release}"), *map(str, own)]):
            argv = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(argv, capture_output=True, text=True).stdout.strip() == release:
                found[major, minor] = python
                break
    found.setdefault(VERSION, sys.executable)
    return found


@pytest.mark.parametrize("any_thread", [False, True] if HAS_MAIN_QUEUE else [False])
def test_each_of_20_injections_into_a_busy_process_runs(
    start: Callable[..., Program], *, any_thread: bool
) -> None:
    """20 of 20 run in a process with six threads that compute, come and go; it lives on."""
    program = start("busy")
    for _ in range(20):
        program.runs_code(any_thread=any_thread)


@pytest.mark.slow
def test_the_versions_need_not_match(start: Callable[..., Program]) -> None:
    """Every Python at hand whose layout is known takes code from this one."""
    for version, python in pythons_at_hand().items():
        program = start("busy", python)
        with program.open() as interpreter:
            assert interpreter.version == version
        program.runs_code()
        program.end()


def test_code_waits_while_the_main_thread_is_in_c(start: Callable[..., Program]) -> None:
    """What is injected into a blocked main thread runs, in order, once that comes back."""
    program = start("blocked")
    with program.open() as interpreter:
        calls = [pending.inject(interpreter, f"print('call',{n})") for n in range(5)]
        assert not any(call.is_taken() for call in calls)
        program.wake()
        program.wait_for_output("call 4")
        assert all(call.is_taken() for call in calls)
    lines = [line for line in program.output.splitlines() if line.startswith("call")]
    assert lines == [f"call {n}" for n in range(5)]


def test_a_full_queue_is_refused(start: Callable[..., Program]) -> None:
    """As many calls as CPython allows fit; one more is refused, and all that fitted run."""
    program = start("blocked")
    with program.open() as interpreter:
        limit = layout_for(VERSION).main_limit
        for _ in range(limit):
            pending.inject(interpreter, "print('ran')")
        with pytest.raises(CannotInject, match="its queue is full"):
            pending.inject(interpreter, "print('ran')")
    program.wake()
    wait_until(lambda: program.output.count("ran\n") == limit, "all have run")
    program.runs_code()


def test_code_that_waits_is_never_overwritten(start: Callable[..., Program]) -> None:
    """Once the spare bytes hold nothing but waiting code, more is refused; all of it runs."""
    program = start("blocked")
    with program.open() as interpreter:
        slack = interpreter.slack()
        placed = slack.size // pending.LONGEST_CODE
        assert 1 <= placed < layout_for(VERSION).main_limit
        for number in range(placed):
            code = f"print('ran {number}')".ljust(pending.LONGEST_CODE - 1)
            pending.inject(interpreter, code)
        with pytest.raises(CannotInject, match="in use by code that waits to be run: with a shor"):
            pending.inject(interpreter, "#" * (pending.LONGEST_CODE - 1))
        program.wake()
        wait_until(lambda: program.output.count("ran ") == placed, "all have run")
    assert all(f"ran {number}\n" in program.output for number in range(placed))


def test_spare_bytes_are_given_back(start: Callable[..., Program]) -> None:
    """After 30 pieces of code that ran and were wiped, the spare bytes are all zero again."""
    program = start("busy")
    with program.open() as interpreter:
        slack = interpreter.slack()
        before = interpreter.memory.read(slack.address, slack.size)
        for _ in range(30):
            program.runs_code()
        assert not any(before)
        assert interpreter.memory.read(slack.address, slack.size) == before


@pytest.mark.parametrize("other", [v for v in LAYOUTS if v != VERSION])
@pytest.mark.parametrize("any_thread", [False, True])
def test_another_releases_layout_is_found_out(
    other: tuple[int, int],
    start: Callable[..., Program],
    monkeypatch: pytest.MonkeyPatch,
    *,
    any_thread: bool,
) -> None:
    """With the layout of any other release the code is refused, and the process is unharmed."""
    program = start("blocked")
    with program.open() as interpreter, monkeypatch.context() as patch:
        patch.setitem(LAYOUTS, VERSION, LAYOUTS[other])
        with pytest.raises(CannotInject):
            pending.inject(interpreter, "print('ran')", any_thread=any_thread)
    program.wake()
    program.runs_code()
    assert "ran" not in program.output


@pytest.mark.parametrize("shift", [-32, -24, -16, -8, 8, 16, 24, 32])
def test_a_queue_that_has_moved_is_found_out(
    shift: int, start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where fields were added or removed before the queue, the code is refused."""
    program = start("blocked")
    right = LAYOUTS[VERSION]
    wrong = right._replace(
        queue=right.queue + shift,
        main_queues=tuple(
            at + shift for at in right.main_queues if at + shift not in right.main_queues
        ),
    )
    with program.open() as interpreter, monkeypatch.context() as patch:
        patch.setitem(LAYOUTS, VERSION, wrong)
        with pytest.raises(CannotInject):
            pending.inject(interpreter, "print('ran')")
    program.wake()
    program.runs_code()
    assert "ran" not in program.output


def test_a_locked_queue_is_waited_for_and_then_refused(start: Callable[..., Program]) -> None:
    """While a thread holds the queue's lock nothing is written; afterwards it works again."""
    program = start("blocked")
    layout = layout_for(VERSION)
    with program.open() as interpreter:
        memory, runtime = interpreter.memory, interpreter.address("_PyRuntime")
        offsets = layout.main_queues
        main = memory.u64(runtime + layout.main_interpreter)
        lock = (runtime + offsets[0] if offsets else main + layout.queue) + layout.ring.lock
        if layout.ring.waiting is None:
            lock, free, taken = memory.u64(lock), b"\1\0\0\0", b"\0\0\0\0"
        else:
            free, taken = b"\0", b"\1"
        assert memory.read(lock, len(free)) == free
        memory.write(lock, taken)
        with pytest.raises(CannotInject, match="always locked"):
            pending.inject(interpreter, "print('ran')")
        memory.write(lock, free)
    program.wake()
    program.runs_code()
    assert "ran" not in program.output


def test_an_unknown_release_is_refused(
    start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release without a layout is refused with its name."""
    with start("blocked").open() as interpreter:
        monkeypatch.setattr(interpreter, "version", (3, 99))
        with pytest.raises(CannotInject, match=r"the queue of CPython 3\.99 is not known here"):
            pending.inject(interpreter, "0")


def test_a_free_threaded_build_is_refused(
    start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build without the interpreter lock has another layout, and is refused."""
    with start("blocked").open() as interpreter:
        monkeypatch.setattr(interpreter, "is_free_threaded", True)
        with pytest.raises(CannotInject, match="without the interpreter lock"):
            pending.inject(interpreter, "0")


def test_too_few_spare_bytes_are_refused(
    start: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter whose last page is full has no room for the code, and the refusal says so."""
    with start("blocked").open() as interpreter:
        slack = interpreter.slack()
        monkeypatch.setattr(interpreter, "slack", lambda: Slack(slack.address, 8))
        with pytest.raises(
            CannotInject, match="leaves 8 spare bytes: with a shorter path in PROBING_HOME it has"
        ):
            pending.inject(interpreter, "print('ran')")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("#" * pending.LONGEST_CODE, "193 bytes, and its queue is given no more than 192: with a"),
        ("é" * 96, "193 bytes, and its queue is given no more than 192: with a shorter path"),
        ("a\0b", "without a zero"),
    ],
)
def test_code_that_does_not_fit_is_refused(
    code: str, says: str, start: Callable[..., Program]
) -> None:
    """Long code, counted in bytes, and code with a zero in it are refused, with a way out."""
    program = start("blocked")
    with program.open() as interpreter, pytest.raises(CannotInject, match=says):
        pending.inject(interpreter, code)


@pytest.mark.skipif(HAS_MAIN_QUEUE, reason="any thread may look into the queue")
def test_any_thread_is_refused_where_only_the_main_thread_looks(
    start: Callable[..., Program],
) -> None:
    """Before Python 3.12 no other thread takes calls from the queue, and the refusal says so."""
    program = start("blocked")
    with program.open() as interpreter, pytest.raises(CannotInject, match="the main thread alone"):
        pending.inject(interpreter, "0", any_thread=True)


def test_a_process_that_ends_meanwhile_is_refused(start: Callable[..., Program]) -> None:
    """A process that has ended since it was looked at is a refusal, and wiping no error."""
    program = start("blocked")
    with program.open() as interpreter:
        placed = pending.inject(interpreter, "0")
        program.end()
        with pytest.raises(CannotInject, match="ended"):
            pending.inject(interpreter, "0")
        with pytest.raises(CannotInject, match="ended"):
            placed.is_taken()
        placed.wipe()
