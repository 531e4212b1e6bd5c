"""What the page shows beside rows: the answers of commands, as JSON.

Rules of this file: each function asks what the command of that name asks, by the same code; it
waits, and so runs in a thread.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from ..api.process import Process
from ..cli.render.memory.fit import basis_lines, largest_lines
from ..cli.render.memory.holder import holder_text
from ..cli.render.process.doctor import nothing_found
from ..cli.reports.cheap_findings import WITHIN_S, find_cheaply
from ..cli.reports.fitting import checking, largest_of
from ..cli.reports.overview import about
from ..cli.reports.run.report import report_of
from ..cluster.job.membership import Member
from ..cluster.ranks.question import Asking, gather_stacks
from ..cluster.ranks.stack_classes import merge_stacks
from ..diagnosis.doctor.examine import examine
from ..diagnosis.doctor.report import Report, plain_findings, plain_report
from ..diagnosis.memory.fit_measured import checked
from ..messages.about.fit import FitRequest
from ..page.report_file import report_file
from .processes import Target

_LARGEST = 10
_ENDED_S = 10.0
"""For findings of a run that has ended: it is asked once, and not every half minute."""
_MARGIN = 0.1
"""The share of the memory that a batch which fits leaves free."""


def findings_of(process: Process) -> dict[str, Any]:
    """The findings that the record alone gives, and what it was asked for them."""
    has_ended = process.folder is not None and not process.folder.is_alive()
    within_s = _ENDED_S if has_ended else WITHIN_S
    found = find_cheaply(process, process.status(), within_s=within_s)
    return {
        "judged": found.judged,
        "late": found.late,
        "findings": plain_findings(found.findings),
        "statements": list(found.statements),
    }


def about_of(process: Process) -> dict[str, Any]:
    """What it is, and how it has ended or where it does not get on."""
    return about(process)._asdict()


def doctor_of(process: Process) -> dict[str, Any]:
    """All that `doctor` finds."""
    return _doctor(process.doctor())


def doctor_of_job(members: Sequence[Member], target: Target) -> dict[str, Any]:
    """All that `doctor` finds in the ranks of a job, compared with each other."""
    job = members[0].job
    words = [word for word in target.endpoints if word != "all"]
    words += [f"job:{job}"] if job is not None and f"job:{job}" not in words else []
    asked = " ".join(f"-t {shlex.quote(word)}" for word in words or ["all"])
    return _doctor(examine(members, token=target.token, asked=asked))


def _doctor(report: Report) -> dict[str, Any]:
    """The report as JSON, with what to say where nothing was found: hardly anything may be seen."""
    return {**plain_report(report), "nothing": nothing_found(report)}


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


def fit_of(process: Process) -> dict[str, Any]:
    """The largest batch that fits, predicted as by `fit --max`."""
    predict = checking(process.fit, lambda answer: checked(process, answer))
    found = largest_of(predict, FitRequest(), memory=None, margin=_MARGIN)
    answer = found.answer
    return {
        "now": dataclasses.asdict(answer.now),
        "asked": dataclasses.asdict(answer.asked),
        "fixed_bytes": answer.fixed_bytes,
        "lines": [*largest_lines(found), *basis_lines(answer)],
    }


def run_report_of(process: Process) -> str:
    """What `report` writes into a file."""
    report = report_of(process)
    return report_file(f"probing: {report.title}", report.record)


def merged_stacks(members: Sequence[Member], timeout_s: float, token: str | None) -> dict[str, Any]:
    """The stacks of some ranks, equal ones once."""
    asking = Asking(members=tuple(members), timeout_s=timeout_s, token=token)
    stacks, _ = gather_stacks(asking)
    return dataclasses.asdict(merge_stacks(stacks))
