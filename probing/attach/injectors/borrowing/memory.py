"""Finds the Python interpreter in another process, and reads and writes that process's memory.

Rules of this file: no thread is stopped here and no code run. Facts come from the memory of
the process, not from names of files, which anybody may have changed. Each way in which reading
can fail is a sentence; none is left to the kernel's own words alone.
"""

from __future__ import annotations

import errno
import os
import re
import struct
from typing import NamedTuple

from ..refusal import CannotInject
from .elf import EXECUTABLE, Image

PAGE = 4096
"""The smallest page there is; where pages are larger, less of the last one is used."""
_TOP = 1 << 63
_MAX_CHAIN = 10_000
_ENOUGH = 256
_COOKIE = b"xdebugpy"
_LEVELS = {0xA: "a", 0xB: "b", 0xC: "rc"}

_LIBPYTHON = re.compile(r"libpython3\.\d+\w*\.so")
_LIBC = re.compile(r"libc[.-]\S*so|libpthread[.-]|ld-musl-|libc\.musl-")
_OTHER_PYTHONS = (
    (re.compile(r"libpypy|/pypy\d?[\d.]*(?: |$)"), "PyPy"),
    (re.compile(r"graalpy|libpythonvm"), "GraalPy"),
)


class Mapping(NamedTuple):
    """One line of ``/proc/PID/maps``: a stretch of memory and the file that lies there."""

    start: int
    end: int
    perms: str
    offset: int
    path: str


class Slack(NamedTuple):
    """Memory that is mapped, writable and used by nobody."""

    address: int
    size: int


class Memory:
    """The memory of another process; `close` it."""

    def __init__(self, pid: int) -> None:
        """Open the memory of a process.

        Raises:
            CannotInject: It is gone, or this user may not.
        """
        self.pid = pid
        try:
            self._fd = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _refusal(error) from None

    def close(self) -> None:
        """Let the memory go; a second time is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes.

        Raises:
            CannotInject: Nothing is mapped there, or the process has ended.
        """
        if not 0 <= address < _TOP - size:
            raise CannotInject(f"there is no memory at {address:#x}")
        try:
            data = os.pread(self._fd, size, address)
        except OSError as error:
            raise _refusal(error, address) from None
        if len(data) != size:
            raise self._cut_short(address + len(data))
        return data

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`, in one go.

        Raises:
            CannotInject: Nothing is mapped there, or the process has ended.
        """
        if not 0 <= address < _TOP - len(data):
            raise CannotInject(f"there is no memory at {address:#x}")
        try:
            written = os.pwrite(self._fd, data, address)
        except OSError as error:
            raise _refusal(error, address) from None
        if written != len(data):
            raise self._cut_short(address + written)

    def u64(self, address: int) -> int:
        """An unsigned number of 8 bytes, or a pointer."""
        return int(struct.unpack("<Q", self.read(address, 8))[0])

    def u32(self, address: int) -> int:
        """An unsigned number of 4 bytes."""
        return int(struct.unpack("<I", self.read(address, 4))[0])

    def i32(self, address: int) -> int:
        """A signed number of 4 bytes."""
        return int(struct.unpack("<i", self.read(address, 4))[0])

    def chain(self, first: int, next_offset: int) -> list[int]:
        """The addresses of the links of a list, each of which holds that of the next.

        Raises:
            CannotInject: It has no end.
        """
        found: list[int] = []
        while first:
            if len(found) == _MAX_CHAIN:
                raise CannotInject("a list in its interpreter has no end")
            found.append(first)
            first = self.u64(first + next_offset)
        return found

    def _cut_short(self, address: int) -> CannotInject:
        """Why less than all was read or written."""
        try:
            os.pread(self._fd, 1, address)
        except OSError as error:
            return _refusal(error, address)
        return CannotInject("it has ended")


class Interpreter:
    """The CPython interpreter in a process; `close` it.

    Attributes:
        pid: The process.
        maps: Its memory map.
        memory: Its memory.
        version: The minor release, such as (3, 12).
        release: The whole version, such as "3.12.1"; "3.10" where more is not known.
        is_free_threaded: Whether it was built to run without the interpreter lock.
        machine: "x86_64" or "aarch64".
    """

    def __init__(self, memory: Memory, maps: tuple[Mapping, ...], path: str, image: Image) -> None:
        """Read the version of the interpreter whose image was found.

        Raises:
            CannotInject: It is older than Python 3.10.
        """
        self.pid = memory.pid
        self.memory = memory
        self.maps = maps
        self.machine = image.machine
        self._path = path
        self._image = image
        self.version, self.release = self._read_version()
        self.is_free_threaded = self._read_free_threaded()

    def close(self) -> None:
        """As `Memory.close`."""
        self.memory.close()

    def address(self, symbol: str) -> int:
        """Where a function or variable of the interpreter lies.

        Raises:
            CannotInject: It offers no such symbol.
        """
        found = self._image.address(symbol)
        if found is None:
            raise CannotInject(f"its Python ({self._path}) has no symbol {symbol}")
        return found

    def libc_address(self, symbol: str) -> int:
        """Where a function of the C library lies.

        Raises:
            CannotInject: No C library is mapped, or it has no such function.
        """
        libraries = self._c_library()
        for image in libraries.values():
            if found := image.address(symbol):
                return found
        names = ", ".join(libraries) or "none is mapped"
        raise CannotInject(f"its C library ({names}) has no symbol {symbol}")

    def slack(self) -> Slack:
        """The longest unused tail of the last page of the interpreter's variables.

        The loader maps whole pages, so what lies behind the variables of an image exists, is
        zero and belongs to nobody. Where the interpreter's tail is too short for anything, that
        of the C library serves: neither is ever unloaded. Empty when there is none.

        Raises:
            CannotInject: Its C library hands such memory out.
        """
        if any("musl" in path for path in self._c_library()):
            raise CannotInject("its C library, musl, gives every spare byte to malloc")
        # Old kernels let the heap begin right behind a program's variables.
        heap = _heap_start(self.pid)
        writable = [m for m in self.maps if m.perms == "rw-p"]
        best = Slack(0, 0)
        for image in self.lasting_images():
            for start, end in image.tails(PAGE):
                is_there = any(m.start < start and end <= m.end for m in writable)
                if is_there and end - start > best.size and not start - 16 <= heap < end:
                    best = Slack(start, end - start)
            if best.size >= _ENOUGH:
                break
        return best

    def lasting_images(self) -> tuple[Image, ...]:
        """The files that are never unloaded: the interpreter and the C library."""
        return (self._image, *self._c_library().values())

    def _c_library(self) -> dict[str, Image]:
        paths = [path for path in _paths(self.maps) if _LIBC.match(os.path.basename(path))]
        found = {path: _locate(self.memory, self.maps, path) for path in paths}
        return {path: image for path, image in found.items() if image}

    def _read_version(self) -> tuple[tuple[int, int], str]:
        at = self._image.address("Py_Version")
        if at is None:
            # 3.10 does not say, but it is the last release without `Py_Version`, and the first
            # with this function of the stable interface.
            if self._image.address("PyModule_AddObjectRef") is None:
                raise CannotInject("it runs a Python older than 3.10")
            return (3, 10), "3.10"
        number = self.memory.u32(at)
        version = (number >> 24, number >> 16 & 0xFF)
        level = _LEVELS.get(number >> 4 & 0xF, "")
        release = f"{version[0]}.{version[1]}.{number >> 8 & 0xFF}"
        return version, release + (f"{level}{number & 0xF}" if level else "")

    def _read_free_threaded(self) -> bool:
        """What the table of offsets, there since 3.13, says about the interpreter lock."""
        if self.version < (3, 13):
            return False
        cookie, _, free_threaded = struct.unpack(
            "<8sQQ", self.memory.read(self.address("_PyRuntime"), 24)
        )
        if cookie != _COOKIE:
            raise CannotInject("its Python has no table of debug offsets")
        return bool(free_threaded)


def read_maps(pid: int) -> tuple[Mapping, ...]:
    """The memory map of a process.

    Raises:
        CannotInject: It is gone, has no memory, or this user may not.
    """
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            lines = file.read().decode("utf-8", "surrogateescape").split("\n")
    except OSError as error:
        raise _refusal(error) from None
    maps = []
    for line in filter(None, lines):
        fields = line.split(None, 5)
        start, end = fields[0].split("-")
        path = fields[5] if len(fields) > 5 else ""
        maps.append(Mapping(int(start, 16), int(end, 16), fields[1], int(fields[2], 16), path))
    if not maps:
        raise CannotInject("it has no memory of its own: it has just ended, or is a kernel thread")
    return tuple(maps)


def executable_ranges(maps: tuple[Mapping, ...]) -> tuple[tuple[int, int], ...]:
    """Begin and end of each mapping that may hold code."""
    return tuple((m.start, m.end) for m in maps if "x" in m.perms)


def find_interpreter(pid: int) -> Interpreter:
    """The CPython interpreter of a process.

    Raises:
        CannotInject: There is none, it is of a kind or age that is not supported, or this user
            may not look.
    """
    memory = Memory(pid)
    found = None
    try:
        found = _search(memory)
    finally:
        if found is None:
            memory.close()
    return found


def _search(memory: Memory) -> Interpreter:
    """Look through the files of a process for the one that holds the interpreter."""
    maps = read_maps(memory.pid)
    for path in _candidates(memory.pid, maps):
        image = _locate(memory, maps, path)
        if image and image.address("_PyRuntime"):
            return Interpreter(memory, maps, path, image)
    raise CannotInject(_why_no_interpreter(memory.pid, maps))


def _candidates(pid: int, maps: tuple[Mapping, ...]) -> list[str]:
    """The files in which the interpreter may be, the likeliest first.

    A program that offers the interpreter's symbols comes before a library: the loader binds
    everybody to the program's. A program started by naming the loader is no executable of its
    process, but its name says Python.
    """
    exe = _executable(pid)
    paths = _paths(maps)
    libraries = [path for path in paths if _LIBPYTHON.search(os.path.basename(path))]
    others = [path for path in paths if os.path.basename(path).startswith("python")]
    return list(dict.fromkeys([exe, *libraries, *others]))


def _why_no_interpreter(pid: int, maps: tuple[Mapping, ...]) -> str:
    """What the process runs, when it is not CPython with its symbols."""
    exe = _executable(pid)
    paths = [*_paths(maps), exe]
    for pattern, name in _OTHER_PYTHONS:
        if any(pattern.search(path) for path in paths):
            return f"it runs {name}, and only CPython can be attached to"
    if any("python" in os.path.basename(path) for path in paths):
        return f"its Python ({exe}) offers no symbols: it is stripped, or not CPython"
    return f"it runs no Python ({exe})"


def _executable(pid: int) -> str:
    """The program of a process, as its memory map names it."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError as error:
        raise _refusal(error) from None


def _paths(maps: tuple[Mapping, ...]) -> list[str]:
    """The files that code of the process comes from, each once."""
    return list(dict.fromkeys(m.path for m in maps if m.path.startswith("/") and "x" in m.perms))


def _locate(memory: Memory, maps: tuple[Mapping, ...], path: str) -> Image | None:
    """Where the loader has put a file; None when it has not.

    A process may also have mapped the file to read it; such a mapping has no executable part
    where the file's headers say that there must be one.
    """
    executable = [(m.start, m.end) for m in maps if m.path == path and "x" in m.perms]
    for mapping in maps:
        if mapping.path != path or mapping.offset != 0:
            continue
        try:
            image = Image(memory.read, mapping.start)
        except CannotInject:
            continue
        code = [image.bias + s.address for s in image.segments if s.flags & EXECUTABLE]
        if code and all(any(a <= at < b for a, b in executable) for at in code):
            return image
    return None


def _heap_start(pid: int) -> int:
    """Where the heap that `brk` moves begins: 0 when the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError as error:
        raise _refusal(error) from None
    return int(fields[44])


def _refusal(error: OSError, address: int | None = None) -> CannotInject:
    """The sentence for an error of the kernel about a process."""
    if error.errno in (errno.ENOENT, errno.ESRCH):
        return CannotInject("it has ended")
    if error.errno in (errno.EACCES, errno.EPERM):
        return CannotInject("the kernel does not let this user into its memory")
    where = "" if address is None else f" at {address:#x}"
    return CannotInject(f"its memory{where} cannot be reached ({os.strerror(error.errno or 0)})")
