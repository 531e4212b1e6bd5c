"""What tensors do otherwise while a `FakeCuda` is below them; see `fake_torch`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import torch

from tests.harness.fake_cuda import TOTAL, FakeCuda

_NOTHING_YET = -12345
"""What lies in memory of the host before the device has written there."""
_KINDS = (torch.Tensor, torch.nn.Parameter)
_FACTORIES = ("empty", "zeros", "ones", "full", "randn", "rand", "randint", "arange", "tensor")


class Tensors:
    """What tensors do otherwise."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self._host: set[int] = set()

    def replacements(self) -> Iterator[tuple[Any, str, Any]]:
        """See `_replacements`."""
        tensor: Any = torch.Tensor
        real: Any = tensor.device

        def device(one: Any) -> Any:
            return (
                torch.device(self._cuda.kind, self._cuda.home)
                if self._is_there(one)
                else real.__get__(one)
            )

        yield tensor, "device", property(device)
        yield tensor, "is_cpu", property(lambda one: not self._is_there(one))
        yield tensor, f"is_{self._cuda.kind}", property(self._is_there)
        for name in ("item", "tolist", "cpu", "__bool__", "__float__", "__int__"):
            yield tensor, name, self._waiting(name.strip("_"), getattr(tensor, name))
        yield tensor, "is_pinned", self._asking_the_driver(tensor.is_pinned)
        yield tensor, "to", self._moving(tensor.to)
        yield tensor, "copy_", self._copying(tensor.copy_)
        for name in _FACTORIES:
            yield torch, name, self._making(getattr(torch, name))

    def _is_there(self, tensor: Any) -> bool:
        """Whether a tensor lies on the device."""
        cuda = self._cuda
        if not (cuda.is_on and cuda.is_mine()) or type(tensor) not in _KINDS:
            return False
        if tensor.layout != torch.strided or tensor.is_meta:
            return False
        return tensor.untyped_storage().data_ptr() not in self._host

    def _waiting(self, name: str, original: Any) -> Any:
        """A method of tensors that waits for the device, where the tensor is there."""

        @functools.wraps(original)
        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_there(tensor):
                self._cuda.note(name, self._cuda.home)
            return original(tensor, *args, **kwargs)

        return method

    def _asking_the_driver(self, original: Any) -> Any:
        """`Tensor.is_pinned`: of memory of the host the driver is asked, once CUDA is in use."""

        @functools.wraps(original)
        def method(tensor: Any, *args: Any) -> Any:
            if self._cuda.is_on and not self._is_there(tensor):
                self._cuda.note("pointer_attributes")
            return original(tensor, *args)

        return method

    def _moving(self, original: Any) -> Any:
        """`Tensor.to`: all are on the device already; what is taken to the host waits."""

        @functools.wraps(original)
        def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            targets = [*args, kwargs.get("device")]
            kinds = [torch.device(t).type for t in targets if isinstance(t, str | torch.device)]
            if "cpu" in kinds and self._is_there(tensor):
                self._cuda.note("cpu", self._cuda.home)
            if self._cuda.kind in kinds:
                args = tuple(one for one in args if isinstance(one, torch.dtype))
                kwargs = {name: value for name, value in kwargs.items() if name == "dtype"}
            return original(tensor, *args, **kwargs) if args or kwargs else tensor

        return method

    def _copying(self, original: Any) -> Any:
        """`Tensor.copy_`: from the device to pinned memory it is done when its turn comes."""

        @functools.wraps(original)
        def method(tensor: Any, source: Any, non_blocking: bool = False) -> Any:
            if self._is_there(tensor) or not self._is_there(source):
                return original(tensor, source)
            if not non_blocking or tensor.dtype != source.dtype:
                self._cuda.note("synchronize", self._cuda.home)
                return original(tensor, source)
            self._cuda.note("copy_to_host", self._cuda.home)
            value = source.detach().clone()
            original(tensor, torch.full_like(value, _NOTHING_YET))
            self._cuda.current(self._cuda.home).push(0.0, lambda _: original(tensor, value))
            return tensor

        return method

    def _making(self, original: Any) -> Any:
        """`torch.empty`: pinned memory is there, and is the host's."""

        @functools.wraps(original)
        def function(*args: Any, **kwargs: Any) -> Any:
            is_pinned = kwargs.pop("pin_memory", False)
            where = str(kwargs.get("device"))
            if where.startswith(self._cuda.kind):
                kwargs.pop("device")
                self._refuse(args)
            made = original(*args, **kwargs)
            if self._cuda.is_faulty and where.startswith(self._cuda.kind):
                made += 1
            if is_pinned:
                self._cuda.note("host_alloc", self._cuda.device_here())
                made.fake_owner = self._cuda.pin(made.nbytes)
            if type(made) in _KINDS and made.numel() and where == "cpu":
                self._host.add(made.untyped_storage().data_ptr())
            return made

        return function

    def _refuse(self, sizes: tuple[Any, ...]) -> None:
        """Run out of memory, if so much is asked for."""
        numbers = [size for size in sizes if isinstance(size, int)]
        asked = 4 * math.prod(numbers) if numbers else 0
        if asked > TOTAL:
            for told in self._cuda.observers:
                told(self._cuda.home, asked, TOTAL, TOTAL - self._cuda.reserved)
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {asked / 2**30:.2f} GiB."
                f" GPU {self._cuda.home} has a total capacity of {TOTAL / 2**30:.2f} GiB"
            )
