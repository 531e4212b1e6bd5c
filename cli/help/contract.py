"""What programs may rely on: the JSON of each command, and the exit codes.

Rules of this file: names alone, for the reference page and the tests. Keys are added; none is
removed or changes its meaning without a line in the changelog. An answer that is a record of the
vocabulary is named by its class, whose attributes are its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module

from ...messages.frozen import dataclass

EXIT_CODES: Mapping[int, str] = {
    0: "The answer is there.",
    1: "The SQL or the user's code failed; with `--check`, there is a finding.",
    2: "The command is not one that can be carried out; nothing was changed.",
    3: "There is no such process, or it cannot be reached.",
    4: "The process, the kernel or a rule refuses it.",
    5: "The time was over.",
    130: "Ctrl-C.",
    141: "The reader of the output went away, as in `| head`.",
}
OWN_CODES: Mapping[str, str] = {
    "hang": "With `--check`: 0 all is well, 1 a hang, 6 a crash, 7 a slow job.",
    "doctor": (
        "With `--check CERTAINTY`: 1 for a finding that is at least so sure, 5 where too little"
        " could be looked at in time."
    ),
    "eval": "1 where the code has raised, 5 where it was ended at its time limit.",
    "repl": "1 where a line has failed, if lines come from a pipe.",
    "run": "That of the script.",
}
"""What exit codes mean for single commands, beyond the common ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command writes with `--json`.

    Attributes:
        shape: ``object``, ``array`` of objects, ``rows``: an array whose keys are the columns, or
            ``lines``: an object on each line.
        record: The class of the object, as ``room.module:Class``; None where the keys stand here.
        keys: The keys where there is no class, or those beside its attributes.
        without: Attributes of the class that are not written.
    """

    shape: str = "object"
    record: str | None = None
    keys: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def all_keys(self) -> tuple[str, ...]:
        """Every key."""
        if self.record is None:
            return self.keys
        module, _, name = self.record.partition(":")
        record = getattr(import_module(f"probing.{module}"), name)
        own = [field.name for field in fields(record)]
        return (*(key for key in own if key not in self.without), *self.keys)


_ACT = Output(record="messages.about.act:Act")
_DIFF = Output(
    keys=(
        "runs",
        "findings",
        "differences",
        "measures",
        "modules",
        "loss",
        "has_common_steps",
        "not_looked_at",
    )
)

OUTPUTS: Mapping[str, Output] = {
    "list": Output(shape="array", record="client.listing:ProcessSummary"),
    "overview": Output(record="cli.reports.overview:Overview"),
    "doctor": Output(keys=("about", "findings", "healthy", "not_looked_at", "seconds", "steps")),
    "backtrace": Output(record="messages.common:Backtrace"),
    "hang": Output(record="diagnosis.hang.evidence:Verdict"),
    "stragglers": Output(
        record="cluster.ranks.slow.stragglers:StragglerReport", keys=("stragglers",)
    ),
    "diff": _DIFF,
    "profile": Output(record="profiling.summary:Profile"),
    "dataloaders": Output(record="diagnosis.dataloading:LoaderReport"),
    "memory": Output(record="diagnosis.memory.memory_report:MemoryReport"),
    "leak": Output(record="diagnosis.leaks.report:LeakReport"),
    "oom": Output(record="diagnosis.memory.out_of_memory:OomReport"),
    "fit": Output(record="messages.about.fit:FitAnswer"),
    "summary": Output(keys=("models", "notes")),
    "gradients": Output(record="diagnosis.arming:Watch"),
    "arm": Output(keys=("armed",)),
    "labels": Output(record="messages.about.labels:LabelsAnswer"),
    "query": Output(shape="rows"),
    "tables": Output(
        shape="array",
        keys=(
            "name", "kind", "doc", "columns", "rows", "written", "overwritten", "dropped",
            "oldest_s", "problem",
        ),
    ),
    "eval": Output(record="messages.common:EvalResult"),
    "jobs": Output(shape="array", record="messages.about.eval:EvalJob"),
    "act lr": _ACT,
    "act undo": _ACT,
    "act list": Output(shape="array", record="messages.about.act:Act"),
    "status": Output(record="cli.reports.status_report:StatusReport"),
    "config": Output(shape="array", record="messages.common:SettingValue"),
    "export": Output(shape="array", record="history.export:Exported"),
    "history runs": Output(shape="array", record="history.runs:Run"),
    "history show": Output(record="cli.reports.run.kept:RunOnOneScreen"),
    "history query": Output(shape="rows"),
    "history diff": _DIFF,
    "history compact": Output(record="history.compaction.outcome:Compacted"),
    "history iceberg": Output(record="history.iceberg.outcome:Committed"),
}  # fmt: skip
"""Of every command that asks a process or a history. Actions beside `act lr` answer as it does."""
