"""Catches what one thread prints, and lets everybody else's output through.

Rules of this file: ``sys.stdout``, ``sys.stderr`` and ``sys.stdin`` are replaced only while code
that was sent is running, and put back unless somebody else has replaced them since. Nothing is ever
written to the host's streams from here.
"""

from __future__ import annotations

import sys
import threading
from typing import Any


class Capture:
    """What one thread has printed, up to a limit.

    Attributes:
        omitted_bytes: What came after the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._parts: list[str] = []
        self.omitted_bytes = 0

    def write(self, text: str) -> None:
        """Keep a text, or as much of it as there is room for."""
        data = b"" if text.isascii() else text.encode("utf-8", "surrogatepass")
        size = len(data) or len(text)
        if size <= self._left:
            self._parts.append(text)
            self._left -= size
            return
        end = self._left
        while data and data[end] & 0xC0 == 0x80:  # in the middle of a character
            end -= 1
        self._parts.append(data[:end].decode("utf-8", "surrogatepass") if data else text[:end])
        self._left = 0
        self.omitted_bytes += size - end

    @property
    def text(self) -> str:
        """All that was kept."""
        return "".join(self._parts)


class _ByThread:
    """A stream that sends each thread's text to its capture, or to the stream it stands for."""

    def __init__(self, stream: Any, captures: dict[int, Capture]) -> None:
        self._stream = stream
        self._captures = captures

    def write(self, text: str) -> int:
        """Write where this thread's text belongs."""
        capture = self._captures.get(threading.get_ident())
        if capture is None:
            if self._stream is None:  # print() says nothing then, and does not fail
                return len(text)
            written: int = self._stream.write(text)
            return written
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        capture.write(text)
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream behind, unless this thread is captured."""
        if threading.get_ident() not in self._captures and self._stream is not None:
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Input:
    """The standard input, which is at its end for threads that are captured: nobody types there.

    Nor can such a thread close it: ``exit()`` does, before it raises SystemExit.
    """

    def __init__(self, stream: Any, captures: dict[int, Capture]) -> None:
        self._stream = stream
        self._captures = captures

    def readline(self, *args: object) -> str:
        """The next line."""
        return str(self._of("readline", *args))

    def read(self, *args: object) -> str:
        """What is left."""
        return str(self._of("read", *args))

    def close(self) -> None:
        """Close it."""
        self._of("close")

    def __iter__(self) -> Any:
        return iter(self.readline, "")

    def __getattr__(self, name: str) -> Any:
        if name in {"fileno", "buffer"} and threading.get_ident() in self._captures:
            raise AttributeError(name)
        return getattr(self._stream, name)

    def _of(self, name: str, *args: object) -> Any:
        """Call a method of the stream, unless this thread is captured."""
        if threading.get_ident() in self._captures:
            return ""
        return getattr(self._stream, name)(*args)


class OutputSwitch:
    """Puts the streams in place with the first capture and takes them away with the last."""

    def __init__(self) -> None:
        self._captures: dict[int, Capture] = {}
        self._lock = threading.Lock()
        self._placed: list[tuple[str, Any, _ByThread | _Input]] = []

    def begin(self, limit_bytes: int) -> Capture:
        """Catch what the calling thread prints from now on."""
        capture = Capture(limit_bytes)
        with self._lock:
            self._captures[threading.get_ident()] = capture
            if not self._placed:
                for name in ("stdout", "stderr", "stdin"):
                    original = getattr(sys, name, None)
                    kind = _Input if name == "stdin" else _ByThread
                    stream = kind(original, self._captures)
                    self._placed.append((name, original, stream))
                    setattr(sys, name, stream)
        return capture

    def end(self) -> None:
        """Stop catching what the calling thread prints."""
        with self._lock:
            self._captures.pop(threading.get_ident(), None)
            for name, original, stream in self._placed:
                if getattr(sys, name, stream) is stream:  # or deleted, by the code that was caught
                    setattr(sys, name, stream if self._captures else original)
            if not self._captures:
                self._placed.clear()
