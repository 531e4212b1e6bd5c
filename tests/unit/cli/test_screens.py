"""What each command draws on terminals of 80 and 120 columns, in states that differ.

The overview and the grid of ranks have their own, see `test_overview`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from probing.cli.questions.library import QUESTIONS
from probing.cli.render.memory.fit import render_fit, render_largest
from probing.cli.render.memory.leak import render_leak
from probing.cli.render.memory.oom import render_oom
from probing.cli.render.memory.report import render_memory
from probing.cli.render.process.catalog import render_tables
from probing.cli.render.process.doctor import render_report
from probing.cli.render.process.processes import render_processes
from probing.cli.render.process.questions import render_questions
from probing.cli.render.process.settings import render_settings
from probing.cli.render.process.stacks import render_backtrace
from probing.cli.render.process.status import render_status
from probing.cli.render.profiling.tables import profile_head, profile_sections
from probing.cli.render.ranks.members import render_members
from probing.cli.render.ranks.runs import render_comparison
from probing.cli.render.ranks.stragglers import render_stragglers
from probing.cli.render.sections import render_sections
from probing.cli.render.text import wrap_lines
from probing.cli.render.training.dataloaders import render_loaders
from probing.cli.render.training.labels import render_label_table
from probing.cli.render.training.summary import render_summary, summary_markdown
from probing.cli.reports.status_report import SourceStatus, StatusReport
from probing.diagnosis.doctor.against import findings_of
from probing.diagnosis.doctor.report import NotLooked, Report
from probing.diagnosis.doctor.rules import RULES
from probing.messages.card import Card
from tests.harness.golden import assert_golden
from tests.unit.cli import test_cli_golden as drawn
from tests.unit.cli.action_samples import draw_acts
from tests.unit.cli.data_samples import LABELS, OOM, OOM_NONE, REPORT
from tests.unit.cli.finding_samples import draw_armed, draw_gradients
from tests.unit.cli.memory_samples import MEMORY_REPORT, NOTHING_SEEN
from tests.unit.cli.overview_samples import HEALTHY as HEALTHY_RUN
from tests.unit.doctor.test_runs import BASE, compared, noisy, run
from tests.unit.memory.leak_samples import HEALTHY, KEPT_GRAPH
from tests.unit.ranks.hang_samples import draw_hang
from tests.unit.ranks.rank_samples import STRAGGLERS

pytestmark = pytest.mark.anypython

GOLDEN = Path(__file__).parent / "golden_widths"
WIDTHS = (80, 120)
CARD = Card(
    pid=4242,
    start_time=1,
    boot_id="b",
    pid_namespace=1,
    uid=1000,
    host="node1",
    command=("python", "train.py", "--lr", "3e-4", "--name", "a-name-as-long-as-people-give-them"),
    executable="/usr/bin/python",
    python="3.11.9",
    version="1",
    started_ns=0,
    rank=3,
    local_rank=3,
    world_size=8,
)
SOURCE = SourceStatus(
    source="backward",
    state="on",
    table="python.torch_trace",
    cost_s=150e-6,
    faults=0,
    note="every pass as a whole, and those of the largest modules, as far as the budget goes",
    rows=4941,
    dropped=0,
)
STATUS = StatusReport(
    card=CARD, sources=(SOURCE,), silence=None, steps=100, cost_s=0.0899, share=0.16, limit=0.01
)
SILENT = dataclasses.replace(
    STATUS, sources=None, silence="process 4242 did not answer within 2 s: it is stopped (SIGSTOP)."
)
NEVER_STARTED = dataclasses.replace(
    SILENT,
    steps=0,
    card=dataclasses.replace(
        CARD,
        problems=("the agent did not start: setting PROBING_OVERHEAD: 'abc' is not a number",),
    ),
)
DOCTOR = Report(
    findings=(),
    healthy=(
        "progress",
        "learning rate",
        "gradients",
        "optimizer",
        "numbers",
        "parameters",
        "memory",
    ),
    not_looked_at=(NotLooked(rules=("host-bound", "tf32-off"), why="no accelerator is in use"),),
    about="process 4242",
    steps=1012,
    seconds=9.0,
)
WITHOUT_AGENT = dataclasses.replace(
    DOCTOR,
    healthy=("process",),
    not_looked_at=(
        NotLooked(
            rules=tuple(rule.name for rule in RULES[5:]),
            why="process 4242 is alive, but it has no probing agent",
        ),
    ),
    steps=0,
)


def draw_runs(width: int) -> str:
    """Two runs of a script, of which the later is slower and has fewer threads."""
    slower = run("22", duration=noisy(9, 0.2), environment=BASE | {("torch", "num_threads"): "1"})
    found = compared(run("1"), slower)
    findings = findings_of(found, ("1", "22"))
    return render_comparison(found, findings, width=width, color=False)


SCREENS: dict[str, Callable[[int], str]] = {
    "act_list": draw_acts,
    "arm_list": lambda _: draw_armed(),
    "backtrace_healthy": lambda _: render_backtrace(drawn.BACKTRACE),
    "config": lambda w: render_settings(drawn.SETTINGS, width=w, color=False),
    "dataloaders_hung": lambda w: render_loaders(REPORT, width=w, color=False),
    "diff_slower": draw_runs,
    "doctor_findings": lambda w: render_report(
        dataclasses.replace(DOCTOR, findings=HEALTHY_RUN.findings), width=w, color=False
    ),
    "doctor_healthy": lambda w: render_report(DOCTOR, width=w, color=False),
    "doctor_without_agent": lambda w: render_report(WITHOUT_AGENT, width=w, color=False),
    "fit": lambda w: render_fit(drawn.FIT, limit_bytes=None, width=w, color=False),
    "fit_max": lambda w: render_largest(drawn.LARGEST, width=w, color=False),
    "gradients": draw_gradients,
    "hang_hung": draw_hang,
    "labels": lambda w: render_label_table(LABELS, width=w, color=False),
    "leak_growing": lambda w: render_leak(KEPT_GRAPH, width=w, color=False),
    "leak_healthy": lambda w: render_leak(HEALTHY, width=w, color=False),
    "list": lambda w: render_processes(
        (*drawn.PROCESSES, drawn.STRANGER, drawn.WORKER), width=w, color=False
    ),
    "list_job_many_missing": lambda w: render_members(drawn.mostly_missing(), width=w, color=False),
    "list_job_two_jobs": lambda w: render_members(drawn.TWO_JOBS, width=w, color=False),
    "memory_healthy": lambda w: render_memory(MEMORY_REPORT, width=w, color=False),
    "memory_without_torch": lambda w: render_memory(NOTHING_SEEN, width=w, color=False),
    "oom_dead": lambda w: render_oom(OOM, most=2, width=w, color=False),
    "oom_healthy": lambda w: render_oom(OOM_NONE, most=10, width=w, color=False),
    "profile": lambda w: render_sections(
        profile_head(drawn.PROFILE), profile_sections(drawn.PROFILE), width=w, color=False
    ),
    "query_saved": lambda w: render_questions(QUESTIONS[:6], width=w, color=False),
    "status_healthy": lambda w: render_status(STATUS, width=w, color=False),
    "status_stopped": lambda w: render_status(SILENT, width=w, color=False),
    "status_without_agent": lambda w: render_status(NEVER_STARTED, width=w, color=False),
    "stragglers_many": lambda w: render_stragglers(STRAGGLERS, width=w, color=False),
    "summary": lambda w: render_summary(drawn.SUMMARY, width=w, color=False),
    "tables": lambda w: render_tables(drawn.TABLES, now_ns=drawn.NOW_NS, width=w, color=False),
}
ALL = [f"{name}_{width}" for name in SCREENS for width in WIDTHS]


def draw(name: str) -> str:
    """A screen as the command puts it on a terminal."""
    command, _, width = name.rpartition("_")
    return wrap_lines(SCREENS[command](int(width)), int(width))


@pytest.mark.parametrize("name", ALL)
def test_a_screen_is_the_golden_one(name: str) -> None:
    """It is exactly the text in its golden file."""
    assert_golden(GOLDEN / f"{name}.txt", draw(name))


@pytest.mark.parametrize("name", ALL)
def test_no_line_is_wider_than_the_terminal(name: str) -> None:
    """But for a path or a line of code, which are not broken: those have no space to break at."""
    width = int(name.rpartition("_")[2])
    wide = [line for line in draw(name).split("\n") if len(line) > width]
    assert not [line for line in wide if " " in line.strip()], wide


def test_no_golden_screen_is_left_over() -> None:
    """Every golden file belongs to a screen."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(ALL)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short", ["short"]),
        ("process  one two three four", ["process  one two", "         three four"]),
        ("one two three fours five", ["one two three fours", "  five"]),
        ("one two three fourth five", ["one two three", "  fourth five"]),
        ("    code = without_end_or_space", ["    code =", "      without_end_or_space"]),
        (f"\x1b[1m{'many words ' * 3}\x1b[0m", [f"\x1b[1m{'many words ' * 3}\x1b[0m"]),
    ],
)
def test_lines_are_broken_between_words(text: str, lines: list[str]) -> None:
    """What goes on stands below what its line begins with; a word is never broken."""
    assert wrap_lines(text, 19).split("\n") == lines
    assert wrap_lines(text, None) == text


def test_a_module_with_a_very_long_name_leaves_room_for_its_figures() -> None:
    """Also where nothing is cut at the terminal's right edge; Markdown has names in full."""
    model = drawn.SUMMARY.models[0]
    rows = [{**row, "module": "n" * 100_000} if row["depth"] else row for row in model.modules]
    summary = dataclasses.replace(
        drawn.SUMMARY, models=(dataclasses.replace(model, modules=tuple(rows)),)
    )
    shown = render_summary(summary, width=None, color=False)
    assert max(map(len, shown.splitlines())) < 1000
    assert "n" * 100_000 in summary_markdown(summary)
