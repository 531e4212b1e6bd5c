"""What an object store can do: list, get, put, copy and remove objects.

Rules of this file: an object is there whole or not at all, and whoever lists after it was put sees
it; nothing more is asked of a store. Who asks, and which server, is the library's business: its
variables, files and roles. What it says of a failure is one sentence.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyarrow import fs

from ...errors import StoreUnreachable
from .address import endpoint_of, parts_of, s3_endpoint, shown_of

CONNECT_S, ANSWER_S = 5.0, 20.0
TRIES = 3
_AT_ONCE = 16
_SMALL = 1 << 20
"""What is smaller is put by one request, which the store does whole or not at all."""
_NOISE = re.compile(
    r"\s*\(Request ID: [^)]*\)|curlCode: \d+, |; Details: .*| after \d+ ms| error_info=.*"
)
_NO_TLS = re.compile(r"\bSSL\b")
_SAID = re.compile(r"AWS Error (.*)", re.DOTALL)

T = TypeVar("T")


class Found(NamedTuple):
    """An object, by its name in the history.

    Attributes:
        mtime_ns: When it was put, by the clock of the store.
    """

    name: str
    size: int
    mtime_ns: int


class Store:
    """A place in an object store; names are relative to it.

    Every method raises `StoreUnreachable` where the store does not do what it is asked.

    Attributes:
        url: What it is called.
    """

    def __init__(self, url: str, make: Callable[[], fs.FileSystem], base: str) -> None:
        self.url = url
        self._make, self._base = make, base

    @functools.cached_property
    def fs(self) -> fs.FileSystem:
        """What reads and writes there; made when first asked for, since that may ask the store."""
        try:
            return self._make()
        except (OSError, pa.ArrowException, AttributeError) as error:
            raise unreachable(self.url, reason_of(error)) from None

    def path(self, name: str) -> str:
        """What `fs` calls an object."""
        return f"{self._base}/{name}" if name else self._base

    def name(self, path: str) -> str:
        """What an object is called that `fs` names."""
        return path.removeprefix(f"{self._base}/")

    def objects(self, folder: str = "") -> list[Found]:
        """All that begin with a folder, in the order of their names."""
        return [
            Found(self.name(info.path), info.size, info.mtime_ns)
            for info in self._infos(folder, recursive=True)
            if info.type == fs.FileType.File
        ]

    def folders(self, folder: str = "") -> list[str]:
        """The folders in a folder."""
        infos = self._infos(folder, recursive=False)
        return [self.name(info.path) for info in infos if info.type == fs.FileType.Directory]

    def get(self, name: str) -> bytes | None:
        """What is in an object; None where there is none."""
        with self.saying_what_failed():
            try:
                with self.fs.open_input_file(self.path(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def put(self, name: str, data: bytes) -> None:
        """Put an object in the place of the one before; it is there whole once this returns."""
        with self.saying_what_failed():
            stream = self.fs.open_output_stream(self.path(name))
            stream.write(data)
            stream.close()
        if len(data) >= _SMALL:
            self._check_size(name, len(data))

    def _check_size(self, name: str, size: int) -> None:
        """See that what was put in several pieces is there whole."""
        with self.saying_what_failed():
            there = self.fs.get_file_info(self.path(name)).size
        if there != size:
            raise unreachable(self.url, f"{name} has {there} bytes there, not {size}")

    def copy(self, name: str, to: str) -> None:
        """Have the store make a second object of one."""
        try:
            with self.saying_what_failed():
                self.fs.copy_file(self.path(name), self.path(to))
        except FileNotFoundError:
            raise unreachable(self.url, f"{name} is not there any more") from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error."""
        at_once(self._remove, list(names))

    def _remove(self, name: str) -> None:
        with self.saying_what_failed(), contextlib.suppress(FileNotFoundError):
            self.fs.delete_file(self.path(name))

    def _infos(self, folder: str, *, recursive: bool) -> list[Any]:
        # What is not there is told apart from a bucket that is not, without a request more.
        chosen = fs.FileSelector(self.path(folder), recursive=recursive, allow_not_found=False)
        with self.saying_what_failed():
            try:
                return sorted(self.fs.get_file_info(chosen), key=lambda info: str(info.path))
            except FileNotFoundError:
                return []

    @contextlib.contextmanager
    def saying_what_failed(self) -> Iterator[None]:
        """Turn what the library says into a sentence; that an object is not there is left alone."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise unreachable(self.url, reason_of(error)) from None


def at_once(function: Any, values: Sequence[T]) -> list[Any]:
    """What a function says of each value, of several at once: each waits for the store."""
    if len(values) < 2:
        return [function(value) for value in values]
    with ThreadPoolExecutor(min(_AT_ONCE, len(values))) as threads:
        return list(threads.map(function, values))


@functools.lru_cache(maxsize=8)
def open_store(url: str) -> Store:
    """The store at an address; nothing is asked of it yet.

    Raises:
        UsageError: That is no address of a store that is known, or not of a server.
    """
    scheme, bucket, prefix = parts_of(url)
    endpoint_of(url)  # which is refused now, and not where it is asked
    base = "/".join(part for part in (bucket, *prefix.split("/")) if part)
    make = functools.partial(_s3, bucket) if scheme == "s3" else _gcs
    return Store(url.rstrip("/"), make, base)


def _s3(bucket: str) -> fs.FileSystem:
    """What asks S3, or a server that speaks as it does."""
    known, endpoint = os.environ.get, s3_endpoint()
    region = known("AWS_REGION") or known("AWS_DEFAULT_REGION") or None
    if region is None and endpoint is None:
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        connect_timeout=CONNECT_S,
        request_timeout=ANSWER_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
        allow_delayed_open=True,  # what is small is put by one request
    )


def _gcs() -> fs.FileSystem:
    """What asks the object store of Google."""
    return fs.GcsFileSystem(retry_time_limit=dt.timedelta(seconds=ANSWER_S))


def unreachable(url: str, reason: str) -> StoreUnreachable:
    """The error of a store that does not do what it is asked; it names the server that is asked."""
    if _NO_TLS.search(reason) and (endpoint := endpoint_of(url)):
        reason += f"; a server without TLS is asked by http://{endpoint.partition('://')[2]}"
    return StoreUnreachable(shown_of(url), reason)


def reason_of(error: BaseException) -> str:
    """What a library says, in one line, without what differs each time."""
    text = " ".join(str(error).split())
    said = _SAID.search(text)
    return _NOISE.sub("", said[1] if said else text).rstrip(". ") or type(error).__name__
