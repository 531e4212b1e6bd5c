"""The interpreter and its symbols are found in a process's memory; garbage is only ever refused."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from probing.attach.injectors.borrowing import memory as memory_module
from probing.attach.injectors.borrowing.elf import EXECUTABLE, WRITABLE, Image
from probing.attach.injectors.borrowing.memory import (
    PAGE,
    Memory,
    executable_ranges,
    find_interpreter,
    read_maps,
)
from probing.attach.injectors.refusal import CannotInject
from tests.harness.targets import DEADLINE_S

pytestmark = pytest.mark.anypython

VERSION = (sys.version_info[0], sys.version_info[1])
READY = "print('ready', flush=True); import time; time.sleep(600)"
BASE = 0x7F00_0000_0000

FUNCTION, DATA, INDIRECT = 0x12, 0x11, 0x1A
"""Symbols that others may use: a function, a variable, and a function chosen at run time."""


def gnu_hash(name: str) -> int:
    """The hash that the format's description gives."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) % 2**32
    return value


def old_hash(name: str) -> int:
    """The hash of the System V standard, as that writes it."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF000_0000
        if high:
            value ^= high >> 24
        value &= ~high
    return value


def build_image(
    symbols: dict[str, tuple[int, int, int]], *, kind: str, moved: bool = False, machine: int = 62
) -> bytes:
    """An ELF image of one page whose dynamic symbols are (value, info, section) by name.

    Args:
        kind: "gnu" or "old": the hash table that it has.
        moved: Whether its loader has already adjusted the pointers of its dynamic section.
    """
    names = sorted(symbols, key=lambda name: gnu_hash(name) % 2)
    text, where = b"\0", {}
    for name in names:
        where[name] = len(text)
        text += name.encode() + b"\0"
    table = bytes(24)
    for name in names:
        value, info, section = symbols[name]
        table += struct.pack("<IBBHQQ", where[name], info, 0, section, value, 8)
    hashes = _gnu_table(names) if kind == "gnu" else _old_table(names)
    dynamic_at, table_at, hash_at, text_at = 0x100, 0x200, 0x400, 0x600
    bias = BASE if moved else 0
    tag = 0x6FFFFEF5 if kind == "gnu" else 4
    entries = [(6, table_at), (5, text_at), (tag, hash_at)]
    dynamic = b"".join(struct.pack("<QQ", t, at + bias) for t, at in entries) + bytes(16)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, 0x800, 0x900, PAGE)
    dynamic_header = struct.pack("<IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, 0, 64, 64, 8)
    image = bytearray(PAGE)
    parts = {0: header + load + dynamic_header, dynamic_at: dynamic, table_at: table}
    for at, part in (parts | {hash_at: hashes, text_at: text}).items():
        image[at : at + len(part)] = part
    return bytes(image)


def _gnu_table(names: list[str]) -> bytes:
    """A GNU hash table of two buckets, for names in the order of their buckets."""
    buckets, chain = [0, 0], []
    for number, name in enumerate(names, 1):
        bucket = gnu_hash(name) % 2
        buckets[bucket] = buckets[bucket] or number
        is_last = number == len(names) or gnu_hash(names[number]) % 2 != bucket
        chain.append(gnu_hash(name) & ~1 | is_last)
    return struct.pack(f"<4IQ2I{len(chain)}I", 2, 1, 1, 0, 0, *buckets, *chain)


def _old_table(names: list[str]) -> bytes:
    """A System V hash table of three buckets."""
    buckets, chain = [0, 0, 0], [0]
    for number, name in enumerate(names, 1):
        bucket = old_hash(name) % 3
        chain.append(buckets[bucket])
        buckets[bucket] = number
    return struct.pack(f"<2I3I{len(chain)}I", 3, len(chain), *buckets, *chain)


def reader(data: bytes) -> Callable[[int, int], bytes]:
    """Reads from an image at `BASE`."""

    def read(address: int, size: int) -> bytes:
        start = address - BASE
        if not 0 <= start <= start + size <= len(data):
            raise CannotInject("out of range")
        return data[start : start + size]

    return read


SYMBOLS = {
    "alpha": (0x10, FUNCTION, 1),
    "beta": (0x20, DATA, 1),
    "gamma_delta_epsilon_of_some_length": (0x30, FUNCTION, 5),
    "elsewhere": (0, FUNCTION, 0),
    "chosen": (0x40, INDIRECT, 1),
}


@pytest.mark.parametrize("kind", ["gnu", "old"])
@pytest.mark.parametrize("moved", [False, True])
def test_each_kind_of_hash_table_is_read(kind: str, *, moved: bool) -> None:
    """Offered symbols are found; references, unknown names and run-time choices are not."""
    image = Image(reader(build_image(SYMBOLS, kind=kind, moved=moved)), BASE)
    found = {name: image.address(name) for name in [*SYMBOLS, "zeta", "alph", "alphaa", ""]}
    assert found == {
        "alpha": BASE + 0x10,
        "beta": BASE + 0x20,
        "gamma_delta_epsilon_of_some_length": BASE + 0x30,
        "elsewhere": None,
        "chosen": None,
        "zeta": None,
        "alph": None,
        "alphaa": None,
        "": None,
    }


def test_the_unused_tail_of_a_segment_is_found() -> None:
    """It begins 16-byte aligned behind the zeroed variables and ends with the page."""
    image = Image(reader(build_image(SYMBOLS, kind="gnu")), BASE)
    assert image.tails(PAGE) == [(BASE + 0x900, BASE + PAGE)]
    assert [segment.flags & (EXECUTABLE | WRITABLE) for segment in image.segments] == [3]


def test_each_machine_has_its_name() -> None:
    """The two kinds of processor are told apart, and any other is refused."""
    for number, name in ((62, "x86_64"), (183, "aarch64")):
        data = build_image(SYMBOLS, kind="gnu", machine=number)
        assert Image(reader(data), BASE).machine == name
    with pytest.raises(CannotInject, match="ELF machine 243"):
        Image(reader(build_image(SYMBOLS, kind="gnu", machine=243)), BASE)


def test_a_symbol_chain_without_end_is_refused() -> None:
    """A chain that leads in a circle is given up."""
    data = bytearray(build_image({"alpha": SYMBOLS["alpha"]}, kind="old"))
    struct.pack_into("<2I", data, 0x400 + 8 + 12, 0, 1)  # the chain of entry 1 goes to entry 1
    image = Image(reader(bytes(data)), BASE)
    other = next(n for n in map(str, range(99)) if old_hash(n) % 3 == old_hash("alpha") % 3)
    with pytest.raises(CannotInject, match="no end"):
        image.address(other)


@given(st.binary(max_size=PAGE))
def test_any_bytes_give_an_image_or_a_refusal(data: bytes) -> None:
    """No bytes, however wrong, lead to anything but an image or a refusal."""
    _use(data)


@given(
    st.sampled_from(["gnu", "old"]),
    st.lists(st.tuples(st.integers(0, 0x700), st.integers(0, 255)), min_size=1, max_size=20),
)
def test_a_damaged_image_gives_an_address_or_a_refusal(
    kind: str, damage: list[tuple[int, int]]
) -> None:
    """Whatever is wrong in an image, a look-up ends, with an address, nothing or a refusal."""
    data = bytearray(build_image(SYMBOLS, kind=kind))
    for at, value in damage:
        data[at] = value
    _use(bytes(data))


def _use(data: bytes) -> None:
    """Do with an image all that is done with one."""
    try:
        image = Image(reader(data), BASE)
        image.tails(PAGE)
        for name in [*SYMBOLS, "zeta"]:
            address = image.address(name)
            assert address is None or isinstance(address, int)
    except CannotInject:
        return


def test_addresses_are_those_of_the_loader() -> None:
    """Functions of the interpreter and of the C library are where the loader says they are."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        for name in ("PyRun_SimpleString", "PyGILState_Ensure", "Py_AddPendingCall"):
            function = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p)
            assert interpreter.address(name) == function.value, name
        for name in ("pthread_create", "pthread_detach", "munmap"):
            function = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p)
            assert interpreter.libc_address(name) == function.value, name
        with pytest.raises(CannotInject, match="has no symbol Py_Nonsense"):
            interpreter.address("Py_Nonsense")
        with pytest.raises(CannotInject, match="has no symbol nonsense"):
            interpreter.libc_address("nonsense")


def test_the_version_is_the_interpreters_own() -> None:
    """Version, release, kind of build and processor are those that the interpreter reports."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        assert interpreter.version == VERSION
        assert sys.version.startswith(interpreter.release)
        assert interpreter.is_free_threaded == (
            hasattr(sys, "_is_gil_enabled") and not sys._is_gil_enabled()
        )
        assert interpreter.machine == os.uname().machine
        code = interpreter.address("PyRun_SimpleString")
        assert any(start <= code < end for start, end in executable_ranges(interpreter.maps))


def test_spare_bytes_are_zero_and_writable() -> None:
    """What is called slack is mapped, writable, all zero, and ends with a page."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        address, size = interpreter.slack()
        assert size > 0
        assert (address + size) % PAGE == 0
        assert not any(interpreter.memory.read(address, size))
        (entry,) = [m for m in interpreter.maps if m.start <= address < m.end]
        assert entry.perms == "rw-p"


def start(argv: list[str], **env: str) -> subprocess.Popen[bytes]:
    """Start a program that says when it is ready."""
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **env})
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill and reap it."""
    process.kill()
    process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def image_path() -> Path:
    """The file that holds this interpreter."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        at = interpreter.address("PyRun_SimpleString")
        (path,) = [m.path for m in interpreter.maps if m.start <= at < m.end]
    return Path(path)


def test_a_file_that_was_replaced_is_no_hindrance(tmp_path: Path, image_path: Path) -> None:
    """After the interpreter's file was deleted and another put in its place, it is still found."""
    copy = tmp_path / image_path.name
    shutil.copy(image_path, copy)
    is_library = ".so" in copy.name
    python = os.path.realpath(sys.executable) if is_library else str(copy)
    env = {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONHOME": sys.base_prefix}
    process = start([python, "-c", READY], **env)
    try:
        assert any(m.path == str(copy) for m in read_maps(process.pid))
        copy.unlink()
        copy.write_bytes(b"something else")
        with closing(find_interpreter(process.pid)) as interpreter:
            assert interpreter.version == VERSION
            assert interpreter.address("PyRun_SimpleString")
            assert interpreter.libc_address("pthread_create")
    finally:
        end(process)


def test_a_python_started_by_the_loader_is_found() -> None:
    """A Python whose executable, by the kernel's word, is the loader is found all the same."""
    loader = next(m.path for m in read_maps(os.getpid()) if "/ld-" in m.path)
    process = start([loader, os.path.realpath(sys.executable), "-I", "-c", READY])
    try:
        assert os.readlink(f"/proc/{process.pid}/exe") == os.path.realpath(loader)
        with closing(find_interpreter(process.pid)) as interpreter:
            assert interpreter.version == VERSION
    finally:
        end(process)


def test_files_that_are_only_read_are_passed_over(image_path: Path) -> None:
    """Where the interpreter's file is also mapped as data, the mapping that runs is taken."""
    program = (
        "import mmap, sys; f = open(sys.argv[1], 'rb');"
        "keep = [mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) for _ in range(3)];" + READY
    )
    process = start([sys.executable, "-I", "-c", program, str(image_path)])
    try:
        heads = [m for m in read_maps(process.pid) if m.path == str(image_path) and not m.offset]
        assert len(heads) == 4
        with closing(find_interpreter(process.pid)) as interpreter:
            at = interpreter.address("PyRun_SimpleString")
            assert any(start <= at < stop for start, stop in executable_ranges(interpreter.maps))
    finally:
        end(process)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no Python."""
    process = subprocess.Popen([shutil.which("sleep") or "sleep", "600"])
    yield process
    end(process)


def test_a_process_that_is_no_python_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    """`sleep` is refused, and the refusal names what it runs."""
    with pytest.raises(CannotInject, match=r"it runs no Python \(.*\)"):
        find_interpreter(sleeper.pid)


def test_a_process_that_is_gone_is_refused(sleeper: subprocess.Popen[bytes]) -> None:
    """A process that has ended is refused, whether it is a zombie or reaped."""
    with closing(Memory(sleeper.pid)) as memory:
        sleeper.kill()
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(CannotInject):
            find_interpreter(sleeper.pid)
        sleeper.wait()
        with pytest.raises(CannotInject, match="it has ended"):
            find_interpreter(sleeper.pid)
        with pytest.raises(CannotInject, match="it has ended"):
            memory.read(PAGE, 8)
        with pytest.raises(CannotInject, match="it has ended"):
            memory.write(PAGE, b"x")
        with pytest.raises(CannotInject, match="it has ended"):
            read_maps(sleeper.pid)


def test_memory_that_is_not_there_is_refused() -> None:
    """Reading and writing where nothing is mapped is a refusal with the address."""
    with closing(Memory(os.getpid())) as memory:
        for address in (0, 2**47, 2**63, 2**64 - 1, 2**80, -1):
            with pytest.raises(CannotInject, match=f"{address:#x}"):
                memory.read(address, 8)
            with pytest.raises(CannotInject, match=f"{address:#x}"):
                memory.write(address, b"x")


def test_numbers_are_read_and_written() -> None:
    """Signed and unsigned numbers of both sizes come back as they were written."""
    buffer = ctypes.create_string_buffer(16)
    at = ctypes.addressof(buffer)
    with closing(Memory(os.getpid())) as memory:
        memory.write(at, struct.pack("<qi", -2, -3))
        assert memory.u64(at) == 2**64 - 2
        assert (memory.u32(at + 8), memory.i32(at + 8)) == (2**32 - 3, -3)
        memory.write(at, struct.pack("<QQ", at + 8, 0))
        assert memory.chain(at, 0) == [at, at + 8]
        memory.write(at, struct.pack("<QQ", at + 8, at))
        with pytest.raises(CannotInject, match="no end"):
            memory.chain(at, 0)


@pytest.mark.parametrize(
    ("exe", "paths", "reason"),
    [
        ("/opt/pypy3.10/bin/pypy3.10", ["/opt/pypy3.10/bin/libpypy3.10-c.so"], "PyPy"),
        ("/usr/bin/pypy3", [], "PyPy"),
        ("/opt/graalpy/bin/graalpy", ["/opt/graalpy/lib/libpythonvm.so"], "GraalPy"),
        ("/usr/bin/python3.11", ["/usr/bin/python3.11"], "offers no symbols"),
        ("/usr/bin/bash", ["/usr/bin/bash"], "it runs no Python"),
    ],
)
def test_why_there_is_no_interpreter(
    exe: str, paths: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other Pythons, stripped ones and other programs are told apart."""
    maps = tuple(memory_module.Mapping(0, PAGE, "r-xp", 0, path) for path in paths)
    monkeypatch.setattr(memory_module, "_executable", lambda pid: exe)
    assert reason in memory_module._why_no_interpreter(1, maps)


def test_musl_leaves_no_spare_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the C library hands spare bytes to malloc, none are used."""
    with closing(find_interpreter(os.getpid())) as interpreter:
        monkeypatch.setattr(interpreter, "_c_library", lambda: {"/lib/ld-musl-x86_64.so.1": None})
        with pytest.raises(CannotInject, match="musl"):
            interpreter.slack()
