"""What a value of a script's or a plugin's becomes in its column, or why it becomes NULL.

Rules of this file: raises nothing that a value raises, waits for no device and keeps no value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...ring.format import is_inline
from ...safety.guard import pass_on

if TYPE_CHECKING:
    from .host import Host

_LEAST, _MOST = -(2**63) + 1, 2**63 - 1
_WORDS = {"int64": "an int", "float64": "a float", "bool": "a bool", "text": "a str"}

Store = Callable[[Any], Any]


class Refused(Exception):
    """A value that its column cannot hold."""


class Values:
    """What becomes of the values of a table that are not plainly of their column's type.

    Args:
        agent: Whose accelerator has numbers told later on; None where nobody waits for one.
    """

    def __init__(self, agent: Host | None) -> None:
        self._agent = agent
        self._refused = 0
        self._why = ""

    @property
    def note(self) -> str | None:
        """How many could not be stored, if any, and why the newest could not."""
        if not self._refused:
            return None
        values = "1 value" if self._refused == 1 else f"{self._refused:,} values"
        return f"{values} could not be stored, the newest: {self._why}"

    def refuse(self, why: str) -> None:
        """One could not be stored."""
        self._refused += 1
        self._why = why

    def told(self, name: str, kind: str, value: Any) -> Any:
        """A value of a column as it is told; None where it cannot be, which is counted."""
        if value is None:
            return None
        store = _TOLD[kind]
        try:
            return store(value)
        except Exception:  # noqa: BLE001 - whatever a value does
            pass_on()
            return self.otherwise(name, kind, value, store)[0]

    def otherwise(self, name: str, kind: str, value: Any, store: Store) -> tuple[Any, Any]:
        """What a value of another type is stored as, and the number that will come for it."""
        wanted = f"{name} is {_WORDS[kind]}"
        torch = sys.modules.get("torch")
        is_tensor = torch is not None and isinstance(value, torch.Tensor)
        try:
            if is_tensor:
                return self._of_tensor(wanted, kind, value, store)
            if getattr(value, "shape", None) == () and hasattr(value, "item"):  # one of numpy's
                value = value.item()
            return store(value), None
        except Exception:  # noqa: BLE001 - as in `told`
            pass_on()
            given = "a number that is too large or has a fraction"
            if is_tensor:  # such as one in vmap, which has a number for each of many
                given = "a tensor that cannot be read"
            elif type(value) in (int, float) and kind in ("text", "bool"):
                given = "a number"
            elif type(value) not in (int, float):
                given = f"a {type(value).__name__}"
            self.refuse(f"{wanted}, and was given {given}")
            return None, None

    def _of_tensor(self, wanted: str, kind: str, tensor: Any, store: Store) -> tuple[Any, Any]:
        """The number in a tensor, if it is here; else what will tell it."""
        from ..sources.numbers.number import read_number

        training = None if self._agent is None else self._agent.training
        accelerator = getattr(training, "accelerator", None)
        if kind == "float64" and accelerator is not None:
            number = read_number(tensor, accelerator)
            if number is not None:
                return None, number
        is_plain = type(tensor) is sys.modules["torch"].Tensor
        if is_plain and tensor.is_cpu and tensor.numel() == 1 and kind != "text":
            try:
                return store(tensor.item()), None
            except (Refused, OverflowError):
                self.refuse(f"{wanted}, and was given a tensor of another type")
                return None, None
        what = f"of {tensor.numel()} elements" if tensor.numel() != 1 else f"on {tensor.device}"
        self.refuse(f"{wanted}, and was given a tensor {what}")
        return None, None


def store_of(code: str, kind: str) -> Store:
    """What turns a value of a column's type into what is stored."""
    if is_inline(code):
        return _text_of(int(code[:-1]))
    return {"int64": _whole, "float64": _number, "bool": _flag}[kind]


def _whole(value: Any) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or not _LEAST <= value <= _MOST:
        raise Refused
    return int(value)


def _number(value: Any) -> float:
    if not isinstance(value, (float, int)):
        raise Refused
    return float(value)


def _flag(value: Any) -> int:
    if value is True:
        return 1
    if value is False:
        return 0
    if type(value) is not int or value not in (0, 1):
        raise Refused
    return value


def _text_of(width: int) -> Callable[[Any], bytes]:
    """What cuts a text where its column ends, between two letters."""

    def text(value: Any) -> bytes:
        if not isinstance(value, str):
            raise Refused
        data = value.encode("utf-8", "replace")
        return data if len(data) <= width else data[:width].decode("utf-8", "ignore").encode()

    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused
    return str(value)


_TOLD: dict[str, Store] = {
    "int64": _whole,
    "float64": _number,
    "bool": lambda value: bool(_flag(value)),
    "text": _text,
}
