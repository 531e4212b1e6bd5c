"""What the page shows beside rows: the answers of commands, as JSON.

Rules of this file: each function asks what the command of that name asks, by the same code; it
waits, and so runs in a thread.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ..api.process import Process
from ..cli.render.memory.holder import holder_text
from ..cli.reports.cheap_findings import find_cheaply
from ..cluster.job.membership import Member
from ..cluster.ranks.question import Asking, gather_stacks
from ..cluster.ranks.stack_classes import merge_stacks
from ..diagnosis.doctor.report import plain_findings, plain_report

_LARGEST = 10


def findings_of(process: Process) -> dict[str, Any]:
    """The findings that the record alone gives, and what it was asked for them."""
    found = find_cheaply(process, process.status())
    return {
        "judged": found.judged,
        "late": found.late,
        "findings": plain_findings(found.findings),
        "statements": list(found.statements),
    }


def doctor_of(process: Process) -> dict[str, Any]:
    """All that `doctor` finds."""
    return plain_report(process.doctor())


def gradients_of(process: Process) -> dict[str, Any]:
    """Have python.gradients get the rows of the next step; what there is to say of that."""
    watch = process.gradients(1)
    return {"notes": list(watch.armed.notes), "rows": len(watch.rows)}


def holders_of(process: Process) -> dict[str, Any]:
    """The largest tensors at the end of a step, and who refers to each."""
    report = process.memory(top=_LARGEST, referrers=True)
    found = report.referrers or {}
    return {
        "tensors": [
            {**row, "holders": [holder_text(one) for one in found.get(row["address"], ())]}
            for row in report.tensors
        ],
        "notes": list(report.notes),
    }


def merged_stacks(members: Sequence[Member], timeout_s: float, token: str | None) -> dict[str, Any]:
    """The stacks of some ranks, equal ones once."""
    asking = Asking(members=tuple(members), timeout_s=timeout_s, token=token)
    stacks, _ = gather_stacks(asking)
    return dataclasses.asdict(merge_stacks(stacks))
