"""The writer of PEP 768: it finds its way by the process's own offsets, and respects its choice."""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from probing.attach.injectors import remote_exec
from probing.attach.injectors.borrowing.memory import Memory, find_interpreter
from probing.attach.injectors.refusal import CannotInject, SwitchedOff
from probing.attach.injectors.remote_exec import DebugOffsets, decode_offsets
from tests.harness.targets import DEADLINE_S, program_path, wait_until

pytestmark = pytest.mark.anypython

COOKIE = int.from_bytes(b"xdebugpy", "little")

# Behind the cookie and the version, as two releases publish them.
PUBLISHED = {
    (3, 14): (
        "0 316616 784 808 225864 7280 7272 7344 7360 7408 7688 7672 7680 16 7784 0 7800 7792 7992"
        " 0 832 0 8 16 72 152 160 232 32 88 8 0 56 80 74 64 0 216 112 120 128 136 68 52 96 104 208"
        " 0 16 8 416 24 88 168 40 32 16 40 24 16 200 24 40 32 48 32 40 24 16 32 16 24 40 16 32 64"
        " 32 16 40 264 192 160 24 72 67 0 8 24 304 8076 0 4 512"
    ),
    (3, 15): (
        "0 346568 912 936 226240 7272 7264 7336 7352 7400 7592 7576 7584 16 7736 0 7752 7744 7944"
        " 0 888 0 8 16 72 80 88 96 176 184 256 32 36 40 136 288 0 88 8 0 56 80 74 64 0 216 112 120"
        " 128 136 68 52 96 104 208 0 16 8 424 24 88 168 32 288 944 888 40 32 16 40 24 16 200 24 40"
        " 32 48 32 40 24 16 32 16 24 40 16 32 64 32 16 40 56 176 112 120 1120 104 160 24 72 67 0 8"
        " 24 344 8028 0 4 512"
    ),
}

# As offsetof() says by the headers of these releases.
BY_HEADERS = {
    (3, 14): DebugOffsets(
        finalizing=784,
        interpreters=808,
        interpreter_id=7280,
        interpreter_next=7272,
        threads=7344,
        main_thread=7360,
        enabled=8076,
        thread_next=8,
        thread_interpreter=16,
        breaker=24,
        pending=304,
        path=308,
    ),
    (3, 15): DebugOffsets(
        finalizing=912,
        interpreters=936,
        interpreter_id=7272,
        interpreter_next=7264,
        threads=7336,
        main_thread=7352,
        enabled=8028,
        thread_next=8,
        thread_interpreter=16,
        breaker=24,
        pending=344,
        path=348,
    ),
}


def published(version: tuple[int, int]) -> list[int]:
    """The numbers at the begin of ``_PyRuntime`` in a release, and what follows them there."""
    words = [COOKIE, version[0] << 24 | version[1] << 16]
    words += map(int, PUBLISHED[version].split())
    return words + [1, 4294967297, 1] + [0] * (253 - len(words))


@pytest.mark.parametrize("version", PUBLISHED)
def test_the_offsets_are_those_of_the_headers(version: tuple[int, int]) -> None:
    """What is found in the published numbers is what the release's headers say."""
    assert decode_offsets(tuple(published(version))) == BY_HEADERS[version]


@given(st.binary(max_size=400), st.integers(0, 253), st.integers(0, 255))
def test_any_numbers_give_offsets_or_a_refusal(data: bytes, at: int, other: int) -> None:
    """No numbers, however wrong, lead to anything but offsets or a refusal."""
    words = list(struct.unpack("<256Q", data.ljust(2048, b"\0")))
    words[at : at + 3] = (0, 4, 512)
    words[other] = 512
    try:
        offsets = decode_offsets(tuple(words))
    except CannotInject:
        return
    assert all(0 <= offset < 2**64 for offset in offsets)


@given(st.integers(4, 94), st.integers(0, 2**64 - 1))
def test_one_wrong_number_never_leads_out_of_the_thread(at: int, value: int) -> None:
    """With any one number changed, what would be written lies inside the thread's state."""
    words = published((3, 14))
    words[at] = value
    try:
        offsets = decode_offsets(tuple(words))
    except CannotInject:
        return
    size = words[22]
    assert offsets.breaker + 8 <= size
    assert offsets.pending + 4 <= size
    assert offsets.path + 512 <= size


class Stage:
    """A process whose memory holds a runtime as 3.14 would lay it out, and which never uses it.

    Two interpreters, the younger one first, as CPython links them; the main one has a main
    thread and another. It stands in for the `Interpreter` that it would be.
    """

    RUNTIME, YOUNGER, MAIN, OTHER_THREAD, MAIN_THREAD, SIZE = 0, 4096, 16384, 28672, 30720, 32768

    def __init__(self) -> None:
        program = (
            f"import ctypes, time; b = ctypes.create_string_buffer({self.SIZE});"
            "print(ctypes.addressof(b), flush=True); time.sleep(600)"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", program], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.base = int(self.process.stdout.readline())
        self.pid = self.process.pid
        self.memory = Memory(self.pid)
        self.version, self.release = (3, 14), "3.14.0"
        self.put(self.RUNTIME, *published((3, 14)))
        o = self.offsets = BY_HEADERS[3, 14]
        self.put(self.RUNTIME + o.interpreters, self.base + self.YOUNGER)
        self.put(self.YOUNGER + o.interpreter_id, 1)
        self.put(self.YOUNGER + o.interpreter_next, self.base + self.MAIN)
        self.put(self.MAIN + o.threads, self.base + self.OTHER_THREAD)
        self.put(self.MAIN + o.main_thread, self.base + self.MAIN_THREAD)
        self.put(self.OTHER_THREAD + o.thread_next, self.base + self.MAIN_THREAD)
        self.put(self.OTHER_THREAD + o.thread_interpreter, self.base + self.MAIN)
        self.put(self.MAIN_THREAD + o.thread_interpreter, self.base + self.MAIN)
        self.put(self.MAIN_THREAD + o.breaker, 0x7700)
        self.put32(self.MAIN + o.enabled, 1)

    def address(self, symbol: str) -> int:
        """As `Interpreter.address`."""
        assert symbol == "_PyRuntime"
        return self.base

    def put(self, at: int, *values: int) -> None:
        """Write numbers of 8 bytes."""
        self.memory.write(self.base + at, struct.pack(f"<{len(values)}Q", *values))

    def put32(self, at: int, value: int) -> None:
        """Write a number of 4 bytes."""
        self.memory.write(self.base + at, struct.pack("<i", value))

    def image(self) -> bytes:
        """All of it."""
        return self.memory.read(self.base, self.SIZE)

    def inject(self, path: str) -> None:
        """Inject a script."""
        remote_exec.inject(self, path)  # type: ignore[arg-type]

    def cancel(self, path: str) -> bool:
        """Take a script back."""
        return remote_exec.cancel(self, path)  # type: ignore[arg-type]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A stage of its own for each test."""
    stage = Stage()
    yield stage
    stage.memory.close()
    stage.process.kill()
    stage.process.communicate(timeout=DEADLINE_S)


def test_path_mark_and_breaker_are_set_in_the_main_thread(stage: Stage) -> None:
    """The path, the mark and one bit of the breaker change, and not another byte."""
    before = bytearray(stage.image())
    stage.inject("/tmp/script.py")
    thread = stage.MAIN_THREAD
    struct.pack_into("<Q", before, thread + stage.offsets.breaker, 0x7700 | 1 << 5)
    struct.pack_into("<i", before, thread + stage.offsets.pending, 1)
    struct.pack_into("<15s", before, thread + stage.offsets.path, b"/tmp/script.py\0")
    assert stage.image() == bytes(before)


def test_a_script_that_waits_is_not_overwritten(stage: Stage) -> None:
    """While one script waits another is refused, and the first one's path stays."""
    stage.inject("/tmp/one.py")
    before = stage.image()
    with pytest.raises(CannotInject, match="another script waits"):
        stage.inject("/tmp/other.py")
    assert stage.image() == before


def test_a_waiting_script_is_taken_back_once(stage: Stage) -> None:
    """The mark goes, and only for the script that waits."""
    stage.inject("/tmp/one.py")
    assert not stage.cancel("/tmp/other.py")
    assert stage.cancel("/tmp/one.py")
    assert not stage.cancel("/tmp/one.py")
    stage.inject("/tmp/other.py")


def test_the_off_switch_is_respected(stage: Stage) -> None:
    """A process that was told to refuse remote debugging is left alone."""
    stage.put32(stage.MAIN + stage.offsets.enabled, 0)
    before = stage.image()
    with pytest.raises(SwitchedOff, match="PYTHON_DISABLE_REMOTE_DEBUG or -X disable-remote"):
        stage.inject("/tmp/script.py")
    assert stage.image() == before


def test_what_makes_no_sense_is_refused(stage: Stage) -> None:
    """Each fact that is not as it must be is a refusal, before anything is written."""
    o = stage.offsets
    wrong = {
        "cookie": (stage.RUNTIME, 1),
        "table": (stage.RUNTIME + 94 * 8, 511),
        "mark": (stage.MAIN_THREAD + o.pending, 2),
        "shutting down": (stage.RUNTIME + o.finalizing, 1),
        "main interpreter": (stage.MAIN + o.interpreter_id, 2),
        "no end": (stage.MAIN + o.interpreter_next, stage.base + stage.YOUNGER),
        "runs no Python": (stage.MAIN + o.main_thread, stage.base),
        "cannot be reached": (stage.MAIN + o.threads, 8),
        "no memory": (stage.MAIN + o.threads, 1 << 63),
    }
    for reason, (at, value) in wrong.items():
        (right,) = struct.unpack("<Q", stage.image()[at : at + 8])
        stage.put(at, value)
        before = stage.image()
        with pytest.raises(CannotInject, match=reason):
            stage.inject("/tmp/script.py")
        assert stage.image() == before, reason
        stage.put(at, right)
    stage.inject("/tmp/script.py")


def test_a_long_path_is_refused(stage: Stage) -> None:
    """511 bytes fit, counted in the file system's encoding; one more does not."""
    with pytest.raises(CannotInject, match="more than 511 bytes"):
        stage.inject("/tmp/" + "é" * 254)
    stage.inject("/" + "x" * 510)


def test_older_pythons_are_refused(stage: Stage) -> None:
    """Before 3.14 there is no such interface, and the refusal names the version that has one."""
    stage.version, stage.release = (3, 13), "3.13.5"
    with pytest.raises(CannotInject, match=r"Python 3\.13\.5 has no interface for it; 3\.14 has"):
        stage.inject("/tmp/script.py")


def new_python() -> str | None:
    """A Python at hand that has the interface: this one first."""
    if sys.version_info >= (3, 14):
        return sys.executable
    return shutil.which("python3.14") or shutil.which("python3.15")


@pytest.mark.skipif(new_python() is None, reason="no Python 3.14 or newer at hand")
def test_each_of_20_scripts_runs_in_a_real_process(tmp_path: Path) -> None:
    """20 of 20 scripts run in a process that computes in several threads; it lives on."""
    python = new_python()
    assert python is not None
    program = program_path("busy_threads")
    target = subprocess.Popen([python, "-I", str(program), "busy"], stdout=subprocess.PIPE)
    try:
        assert target.stdout is not None
        assert target.stdout.readline() == b"ready\n"
        for number in range(20):
            mark, script = tmp_path / f"{number}", tmp_path / f"{number}.py"
            script.write_text(f"open({str(mark)!r}, 'w').close()")
            with contextlib.closing(find_interpreter(target.pid)) as interpreter:
                remote_exec.inject(interpreter, os.fspath(script))
            wait_until(mark.exists, "the script has run")
        assert target.poll() is None
    finally:
        target.kill()
        target.communicate(timeout=DEADLINE_S)
