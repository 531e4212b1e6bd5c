"""How SLURM names jobs: ``4711``, a task of an array ``4711_3``, a component ``4711+0``.

Rules of this file: pure. The name of a step (``4711.0``, ``4711_3.batch``) is that of its job.
"""

from __future__ import annotations

import re

from ....messages.frozen import dataclass

_NAME = re.compile(
    r"(?P<number>\d{1,18})"
    r"(?:_(?P<task>\d{1,18})|_\[(?P<tasks>[^\[\]]+)\]|\+(?P<component>\d{1,18}))?"
    r"(?:\.[A-Za-z0-9]+)?",
    re.ASCII,
)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?::(\d{1,18}))?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """A job, or a part of one.

    Attributes:
        name: As it was written, without a step.
        number: That of the job, or of the array or group of jobs that it is a part of.
        tasks: Those of an array that are meant; None for all.
        component: The one of a heterogeneous job that is meant; None for all.
    """

    name: str
    number: str
    tasks: tuple[range, ...] | None = None
    component: int | None = None

    def has(self, shown: str) -> bool:
        """Whether SLURM shows this, or a part of it, by that name; of an array each task alone."""
        if self.tasks is None and self.component is None:
            return True
        other = job_of(shown)
        if other is None or other.number != self.number:
            return False
        if self.tasks is None:
            return other.component == self.component
        return any(one[0] in all_ for one in other.tasks or () if one for all_ in self.tasks)


def job_of(word: str) -> SlurmJob | None:
    """The job that a word names; None where it names none, but nodes."""
    found = _NAME.fullmatch(word)
    if found is None:
        return None
    tasks = None
    if found["task"] or found["tasks"]:
        tasks = _ranges(found["task"] or found["tasks"])
        if tasks is None:
            return None
    component = int(found["component"]) if found["component"] else None
    name = word.partition(".")[0]
    return SlurmJob(name=name, number=found["number"], tasks=tasks, component=component)


def _ranges(text: str) -> tuple[range, ...] | None:
    """The tasks of ``1,3-9:2%4``, of which at most four run at once; None where it is no such."""
    found: list[range] = []
    for part in text.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part)
        if match is None or match[3] == "0":
            return None
        found.append(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return tuple(found)
