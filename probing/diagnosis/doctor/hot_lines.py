"""Lines of the program that its training thread was in, from samples of its stacks.

Rules of this file: pure functions, but for the text of a line, which is read from its file.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections import Counter
from collections.abc import Sequence

from ...messages.frozen import dataclass
from .not_looked_at import NotLookedAt

_LIBRARIES = re.compile(
    r"/probing/(?:agent|safety|ring)/|/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+|<frozen|<string>"
)
_MEASURING = re.compile(r"/probing/(?:agent/(?:recording|sources/(?:steps/rows|memory))|ring)/")
"""What only measures, and calls nothing of the program: it is met there where a command that asks,
or others on the processors, hold the thread up."""
_SLEEPS, _SLEEP_CALL = re.compile(r"\bsleep$"), re.compile(r"\bsleep\(")
_PASSES = frozenset({"_engine_run_backward", "profile_hook_step"})
"""What a backward pass and the step of an optimizer are in, by the last of their plain names."""
_OFTEN = 0.1
"""From what part of the samples on a line is met often."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LOOPS = (
    *(ast.For, ast.AsyncFor, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_FORWARD, _CALL = re.compile(r"(?:^|\.)forward$"), re.compile(r"(?:^|\.)_call_impl$")
Stacks = Sequence[tuple[tuple[str, ...], int]]
"""Stacks, each a thread and its frames from the outside in, and how often they were met."""
_FRAME = re.compile(r"(?P<func>.+) \((?P<file>.+):(?P<line>\d+)\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class HotLine:
    """A line of the program's own code, and what part of the samples it was in.

    Attributes:
        share: From 0 to 1.
        inner: The innermost function at most of those moments, such as ``gc.collect``.
        below: The functions of libraries that it was in, at most of those moments.
        above: The functions of the program that it was called from, and its own, at most of them.
        source: The line itself; empty where its file is not to be had.
        forward: The forward of a module that it is own code of, at most of those moments: no other
            module was called on the way; empty where it is none.
        in_loop: Whether it is in a loop of its function; False where its file is not to be had.
    """

    func: str
    place: str
    share: float
    inner: str = ""
    below: tuple[str, ...] = ()
    above: tuple[str, ...] = ()
    source: str = ""
    forward: str = ""
    in_loop: bool = False

    @property
    def calls(self) -> str:
        """The text of the line and the function that it is in, as the text of a call."""
        return f"{self.source} {self.inner}("

    @property
    def is_outside(self) -> bool:
        """Whether it is met often, and not in a backward pass or the step of an optimizer.

        These are phases of their own: a line in one says nothing of the script's own code.
        """
        passes = any(_PASSES.intersection(name.split(".")) for name in self.below)
        return self.share >= _OFTEN and not passes

    @property
    def sleeps(self) -> bool:
        """Whether what is done there is to sleep; functions in C are no frames of a stack."""
        is_in_c = self.inner == self.func and bool(_SLEEP_CALL.search(self.source))
        return is_in_c or bool(_SLEEPS.search(self.inner))


def in_thread(stacks: Stacks, thread: int | None) -> list[tuple[tuple[str, ...], int]]:
    """Those of the thread of that number, or of the main thread.

    Raises:
        NotLookedAt: The stacks bear Python's numbers of their threads, and not the kernel's.
    """
    name = "MainThread" if thread is None else f"thread ({thread})"
    found = [(frames, number) for frames, number in stacks if name in frames[0]]
    if thread and not found and any(frames[0].startswith("thread (0x") for frames, _ in stacks):
        raise NotLookedAt("before Python 3.11 no sample tells which thread the training's is")
    return found


def lines_in(stacks: Stacks, thread: int | None = None) -> list[HotLine]:
    """The lines of the program in the training thread's stacks, by their share.

    Args:
        thread: Its number, where it is not the main thread.

    Raises:
        NotLookedAt: The stacks do not tell which is that thread's.
    """
    main = in_thread(stacks, thread) or (list(stacks) if thread is None else [])
    main = [(frames, n) for frames, n in main if not _MEASURING.search(frames[-1])]
    total = sum(number for _, number in main)
    counts: Counter[tuple[str, str, str]] = Counter()
    below: dict[tuple[str, str, str], Counter[str]] = {}
    above: dict[tuple[str, str, str], Counter[str]] = {}
    inner: dict[tuple[str, str, str], Counter[str]] = {}
    forward: dict[tuple[str, str, str], Counter[str]] = {}
    for frames, number in main:
        places = [match for frame in frames[1:] if (match := _FRAME.match(frame))]
        own = [place for place, one in enumerate(places) if not _LIBRARIES.search(one["file"])]
        if not own:
            continue
        line = places[own[-1]]
        key = line["func"], line["file"], line["line"]
        counts[key] += number
        inner.setdefault(key, Counter())[places[-1]["func"]] += number
        forward.setdefault(key, Counter())[_forward_of(places, own)] += number
        for name in {one["func"] for one in places[own[-1] + 1 :]}:
            below.setdefault(key, Counter())[name] += number
        for name in {places[place]["func"] for place in own}:
            above.setdefault(key, Counter())[name] += number
    return [
        HotLine(
            func=key[0],
            place=f"{key[1].rpartition('/')[2]}:{key[2]}",
            share=number / total,
            inner=inner[key].most_common(1)[0][0],
            below=tuple(n for n, count in below.get(key, {}).items() if count >= number / 2),
            above=tuple(n for n, count in above[key].items() if count >= number / 2),
            forward=forward[key].most_common(1)[0][0],
            source=linecache.getline(key[1], int(key[2])).strip(),
            in_loop=_is_in_loop(key[1], int(key[2])),
        )
        for key, number in counts.most_common()
    ]


def _forward_of(places: Sequence[re.Match[str]], own: Sequence[int]) -> str:
    """The forward of which the innermost place of the program is own code; empty if of none.

    Args:
        own: Which of them are the program's.
    """
    at = next((n for n in reversed(own) if _FORWARD.search(places[n]["func"])), None)
    if at is None or any(_CALL.search(one["func"]) for one in places[at + 1 :]):
        return ""
    return places[at]["func"]


def _is_in_loop(file: str, line: int) -> bool:
    """Whether a line is in a loop of the innermost function that it is in."""
    functions, loops = _blocks("".join(linecache.getlines(file)))
    first = max((begin for begin, end in functions if begin <= line <= end), default=0)
    return any(first <= begin <= line <= end for begin, end in loops)


@functools.lru_cache(maxsize=16)
def _blocks(text: str) -> tuple[Sequence[tuple[int, int]], Sequence[tuple[int, int]]]:
    """The first and the last lines of the functions and of the loops in the text of a file.

    Kept, since a program's hot lines are often in one file, and a page asks again and again.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return (), ()
    functions, loops = (
        [(node.lineno, node.end_lineno or node.lineno) for node in nodes if isinstance(node, kinds)]
        for kinds in (_FUNCTIONS, _LOOPS)
    )
    return functions, loops


def loops_in(line: HotLine, class_name: str) -> bool:
    """Whether a line is in a loop of the program that a module of that class has called."""
    forwards = {f"{class_name}.forward", "forward"}  # the latter on Python 3.10
    is_own = bool(forwards & set(line.above)) or line.func.startswith(f"{class_name}.")
    return is_own and line.in_loop
