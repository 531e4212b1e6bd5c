"""Reads what is in a checkpoint of torch.save, without torch and without running any of it.

Rules of this file: runs at the operator's side. A checkpoint is a pickle, and a pickle can run any
code as it is opened; so its program is read by an unpickler that knows tensors, storages and plain
containers, and has a mute stand-in for every other class. The bytes of tensors are looked at in
place, one storage at a time.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from ..errors import UsageError
from ..messages.frozen import dataclass

_DTYPES: dict[str, tuple[str, int, str | None]] = {
    "FloatStorage": ("float32", 4, "<f4"),
    "DoubleStorage": ("float64", 8, "<f8"),
    "HalfStorage": ("float16", 2, "<f2"),
    "BFloat16Storage": ("bfloat16", 2, None),
    "LongStorage": ("int64", 8, None),
    "IntStorage": ("int32", 4, None),
    "ShortStorage": ("int16", 2, None),
    "CharStorage": ("int8", 1, None),
    "ByteStorage": ("uint8", 1, None),
    "BoolStorage": ("bool", 1, None),
    "ComplexFloatStorage": ("complex64", 8, "<c8"),
    "ComplexDoubleStorage": ("complex128", 16, "<c16"),
    "UntypedStorage": ("uint8", 1, None),
}
"""Storage classes: dtype, bytes of an element, how numpy reads it where that can be infinite."""
_NEVER_INFINITE = {"int64", "int32", "int16", "int8", "uint8", "bool"}
_MOST_PICKLE_BYTES = 1 << 28
_PIECE = 1 << 24
_MOST_VALUE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor or value of a checkpoint.

    Attributes:
        key: Where it is, such as ``model.blocks.0.weight``.
        kind: ``tensor``, or the type of the value.
        dtype: Of a tensor.
        shape: Of a tensor.
        bytes: What its elements take; None for a value.
        not_finite: How many of its elements are NaN or infinite; None where that was not counted.
        value: The value as text.
    """

    key: str
    kind: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    bytes: int | None = None
    not_finite: int | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """What is in a checkpoint.

    Attributes:
        step: The value of its key ``step``, if it has one that is a number.
        bytes: The size of all storages.
        keys: The keys at the top.
        unknown: Classes that ``torch.load(weights_only=True)`` may refuse.
    """

    step: int | None
    bytes: int
    keys: tuple[str, ...]
    entries: tuple[Entry, ...]
    unknown: tuple[str, ...]


class _Storage(NamedTuple):
    """A storage that the file holds."""

    kind: str
    key: str


class _Tensor(NamedTuple):
    """A view of a storage."""

    storage: _Storage
    shape: tuple[int, ...]
    offset: int
    is_dense: bool
    dtype: str | None


class _Named:
    """Stands for a class or function of torch or of the script; calling it does nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What it would make."""
        return _Thing(self.name)


class _Thing:
    """Stands for an object of a class that is not known here."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """An item of a container of its own kind."""

    def append(self, value: Any) -> None:
        """The same."""

    def extend(self, values: Any) -> None:
        """The same."""


class _Reader(pickle.Unpickler):
    """Reads a checkpoint's pickle as data."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.unknown: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        """What a name in the pickle stands for; nothing is imported."""
        full = f"{module}.{name}"
        if full == "collections.OrderedDict":
            return OrderedDict
        if full in {"torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"}:
            return _rebuilt
        if full == "torch._utils._rebuild_parameter":
            return lambda tensor, *_: tensor
        if full == "torch.Size":
            return lambda sizes=(): tuple(sizes)
        if module in {"torch", "torch.storage"}:
            return _Named(name)
        self.unknown.add(full)
        return _Named(full)

    def persistent_load(self, pid: Any) -> Any:
        """A storage, by what the pickle says of it."""
        _, kind, key, *_ = pid
        return _Storage(kind.name if isinstance(kind, _Named) else str(kind), str(key))


def read_checkpoint(path: str) -> CheckpointContent:
    """What is in a checkpoint.

    Raises:
        UsageError: The file cannot be read, or is none of torch.save.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _content(archive)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}.") from None
    except zipfile.BadZipFile:
        raise UsageError(
            f"{path} is no file of torch.save, or is cut off.",
            help="Files of torch before 1.6 and safetensors are not read.",
        ) from None
    except (pickle.UnpicklingError, KeyError, ValueError, TypeError, EOFError, IndexError,
            AttributeError, RecursionError) as error:  # fmt: skip
        raise UsageError(f"{path} cannot be read as a checkpoint: {error}.") from None


def _content(archive: zipfile.ZipFile) -> CheckpointContent:
    """What is in an open file."""
    found = [name for name in archive.namelist() if name.endswith("/data.pkl")]
    if len(found) != 1 or archive.getinfo(found[0]).file_size > _MOST_PICKLE_BYTES:
        raise zipfile.BadZipFile
    root = found[0].removesuffix("data.pkl")
    reader = _Reader(archive.read(found[0]))
    loaded = reader.load()
    data = [i for i in archive.infolist() if i.filename.startswith(f"{root}data/")]
    entries = tuple(_entry(archive, root, key, value) for key, value in _leaves("", loaded))
    step = loaded.get("step") if isinstance(loaded, dict) else None
    return CheckpointContent(
        step=step if type(step) is int else None,
        bytes=sum(info.file_size for info in data),
        keys=tuple(str(key) for key in loaded) if isinstance(loaded, dict) else (),
        entries=entries,
        unknown=tuple(sorted(reader.unknown)),
    )


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and values, with where they are; a long list of numbers is one value."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _leaves(f"{key}.{name}" if key else str(name), part)
    elif type(value) in {list, tuple} and any(_is_container(part) for part in value):
        for index, part in enumerate(value):
            yield from _leaves(f"{key}[{index}]", part)
    else:
        yield key, value


def _is_container(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple))


def _entry(archive: zipfile.ZipFile, root: str, key: str, value: Any) -> Entry:
    if not isinstance(value, _Tensor):
        text = value.name if isinstance(value, (_Thing, _Named)) else _text(value)
        return Entry(key=key, kind=type(value).__name__.lstrip("_").lower(), value=text)
    dtype, width, numpy_dtype = _DTYPES.get(value.storage.kind, (value.dtype or "?", 0, None))
    count = 1
    for size in value.shape:
        count *= size
    return Entry(
        key=key,
        kind="tensor",
        dtype=dtype,
        shape=value.shape,
        bytes=count * width if width else None,
        not_finite=_not_finite(
            archive.open(f"{root}data/{value.storage.key}"),
            dtype,
            numpy_dtype,
            _range_of(value, count, width, archive.getinfo(f"{root}data/{value.storage.key}")),
        ),
    )


def _range_of(
    tensor: _Tensor, count: int, width: int, storage: zipfile.ZipInfo
) -> tuple[int, int] | None:
    """Which bytes of its storage are a tensor's; None where they lie apart."""
    if tensor.is_dense:
        return tensor.offset * width, count * width
    return (0, storage.file_size) if count * width == storage.file_size else None


def _not_finite(
    file: IO[bytes], dtype: str, numpy_dtype: str | None, place: tuple[int, int] | None
) -> int | None:
    """How many elements are NaN or infinite; None for a dtype or a layout that is not read."""
    import numpy as np

    if dtype in _NEVER_INFINITE:
        return 0
    if place is None or (numpy_dtype is None and dtype != "bfloat16"):
        return None
    found, (begin, left) = 0, place
    with file:
        file.seek(begin)
        while piece := file.read(min(_PIECE, left)):
            left -= len(piece)
            if dtype == "bfloat16":  # all bits of the exponent are set
                found += int(((np.frombuffer(piece, "<u2") & 0x7F80) == 0x7F80).sum())
            else:
                found += int((~np.isfinite(np.frombuffer(piece, numpy_dtype))).sum())
    return found


def _rebuilt(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> _Tensor:
    dtype = next((part.name for part in rest if isinstance(part, _Named)), None)
    shape, dense, expected = tuple(int(n) for n in size), True, 1
    for length, step in zip(reversed(shape), reversed([int(n) for n in stride]), strict=True):
        dense = dense and (length == 1 or step == expected)
        expected *= length
    return _Tensor(storage, shape, int(offset), dense, dtype)


def _text(value: Any) -> str:
    """A value, shortened."""
    text = repr(value)
    return text if len(text) <= _MOST_VALUE_CHARS else f"{text[:_MOST_VALUE_CHARS]}…"
