"""Whether a process waits for somebody to give it code: a notebook's kernel, or IPython's prompt.

Rules of this file: pure functions of a backtrace. A cell that runs is on the thread's stack, or it
awaits something and is a task of its event loop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ....messages.common import Backtrace, Frame, TaskStack, ThreadStack
from ....stacks.waits import library_path

_WAITS = (
    (
        re.compile(
            r"(ipykernel/(kernelapp|embed|eventloops)|ipykernel_launcher|colab_kernel_\w+)\.py"
        ),
        "idle in a notebook, waiting for the next cell",
    ),
    (
        re.compile(r"IPython/terminal/(interactiveshell|embed)\.py"),
        "idle at the prompt of IPython, waiting for the next input",
    ),
)
"""Where code is waited for, and how that is told."""
PROMPTS = tuple(words for _, words in _WAITS)
_RUNS = re.compile(r"IPython/core/")
"""What runs what was given."""
SERVES = re.compile(
    r"(IPython|aiohttp|anyio|asyncio|fastapi|grpc|hypercorn|ipykernel|jupyter_client"
    r"|prompt_toolkit|starlette|tornado|uvicorn|websockets|zmq)/|(ipykernel_launcher|contextlib)\.py"
)
"""Packages that wait for cells and requests; a task of any other may be a training."""
_SLEEPS = "sleeping"


def at_prompt(trace: Backtrace, thread: ThreadStack) -> str | None:
    """What a thread waits for that waits for code, in words; None where it does something else."""
    if any(_may_train(task) for task in trace.tasks if task.thread_id == thread.thread_id):
        return None
    for path in _paths(thread.frames):
        if path is None or _RUNS.match(path):
            return None
        for where, words in _WAITS:
            if where.match(path):
                return words
    return None


def _may_train(task: TaskStack) -> bool:
    """Whether a task is a cell, or waits for something that it needs to go on."""
    paths = _paths(task.frames)
    if any(path is not None and _RUNS.match(path) for path in paths):
        return True
    serves = all(path is not None and SERVES.match(path) for path in paths)
    return not serves and not (task.waiting or "").startswith(_SLEEPS)


def _paths(frames: Sequence[Frame]) -> list[str | None]:
    """The files of the frames of Python, innermost first; None for one that is no library's."""
    return [library_path(frame.file) for frame in frames if frame.kind == "python"]
