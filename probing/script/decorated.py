"""Functions that go on after they have returned, such as coroutines and generators, as spans.

Rules of this file: what comes out of a decorated function is of the kind that the function makes,
and passes on all that it is sent.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

Enter = Callable[[], AbstractContextManager[Any]]


def lasting(function: Callable[..., Any], enter: Enter) -> Callable[..., Any] | None:
    """A function whose coroutine or generator runs within what is entered; None for any other."""
    if inspect.isasyncgenfunction(function):
        return _asynchronous_generator(function, enter)
    if inspect.isgeneratorfunction(function):
        return _generator(function, enter)
    if inspect.iscoroutinefunction(function):
        return _coroutine(function, enter)
    return None


def _coroutine(function: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(function)
    async def inner(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return await function(*args, **kwargs)

    return inner


def _generator(function: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with enter():
            return (yield from function(*args, **kwargs))

    code: types.CodeType | None = getattr(function, "__code__", None)
    is_awaitable = code is not None and code.co_flags & inspect.CO_ITERABLE_COROUTINE
    return types.coroutine(inner) if is_awaitable else inner


def _asynchronous_generator(function: Callable[..., Any], enter: Enter) -> Callable[..., Any]:
    @functools.wraps(function)
    async def inner(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with enter():
            made = function(*args, **kwargs)
            try:
                item = await made.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await made.aclose()
                        raise
                    except BaseException as error:  # noqa: BLE001 - whatever it is thrown
                        item = await made.athrow(error)
                    else:
                        item = await made.asend(sent)
            except StopAsyncIteration:
                return

    return inner
