"""What CONTRIBUTING says is all that it takes to add a table and a command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target, start_training

TABLE = '''"""What the weather is."""

from __future__ import annotations

from .records import Table, count, text

WEATHERS = Table(
    name="weathers",
    kind="live",
    doc="What the weather is where the process runs.",
    columns=(text("sky", "Its colour."), count("temperature_c", "How warm it is.", unit="C")),
)
'''
SOURCE = '''"""The weather."""

from __future__ import annotations

from ...messages.common import LiveRows
from ..live.question import LiveQuestion


def rows(question: LiveQuestion) -> LiveRows:
    """It is always fine."""
    return LiveRows(table=question.table, columns=("sky", "temperature_c"), rows=(("blue", 21),))
'''
RECORDED = '''"""The largest learning rate of each optimizer step."""

from __future__ import annotations

from .columns import SEQ, START_NS, STEP
from .records import Table, number

RATES = Table(
    name="rates",
    kind="recorded",
    rows=256,
    doc="One row per optimizer step.",
    columns=(STEP, number("largest", "The largest learning rate."), START_NS, SEQ),
)
'''
RECORDER = '''"""Records the largest learning rate of each optimizer step."""

from __future__ import annotations

import time
from typing import Any

from ...ring.format import DONE
from ...ring.writer import RingWriter
from ...safety.guard import Guard
from .accelerator import Accelerator
from .shared.recording import Recording
from .torch_types import Optimizer


def source(recording: Recording, ring: RingWriter, accelerator: Accelerator) -> Rates:
    """What writes the table."""
    return Rates(recording, ring)


class Rates:
    """Writes a row after each step of an optimizer."""

    def __init__(self, recording: Recording, ring: RingWriter) -> None:
        self._recording, self._ring = recording, ring
        self.is_on = False
        self.guard = Guard("rates", self.stop)

    def start(self) -> None:
        """Record from now on."""
        self.is_on = True
        self._recording.events.after_step += (self._stepped,)

    def stop(self) -> None:
        """Record no more."""
        self.is_on = False
        self._recording.events.forget(self._stepped)

    def close(self) -> None:
        """Stop for good."""
        self.stop()

    def remains(self) -> list[str]:
        """Nothing stays."""
        return []

    def _stepped(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.guard.run(self._write, optimizer)

    def _write(self, optimizer: Optimizer) -> None:
        largest = max(group["lr"] for group in optimizer.param_groups)
        values = {"step": self._recording.step, "start_ns": time.perf_counter_ns()}
        self._ring.close_row(self._ring.open_named({**values, "largest": largest}), DONE)
'''
COMMAND = '''"""`probing ENDPOINT weather`: what the weather is."""

from __future__ import annotations

import click

from ..ask.replies import show
from ..command import AskCommand
from ..options import style_option
from ..target import asked_target, target_options


@click.command("weather", cls=AskCommand)
@target_options
@style_option("text", "json")
@click.pass_context
def command(context: click.Context, *, style: str) -> None:
    """Show what the weather is."""
    code = show(
        asked_target(context),
        style,
        lambda process: process.live("weathers").dicts(),
        lambda rows, _: f"the sky is {rows[0]['sky']}",
        lambda rows: rows,
    )
    context.exit(code)
'''


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product to which two tables and a command have been added."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("probing", "agent", "cli"):
        junk = shutil.ignore_patterns("node_modules", "*.pyc.*")  # being written
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=junk)
    (copy / "probing/tables/weathers.py").write_text(TABLE)
    (copy / "agent/sources/weathers.py").write_text(SOURCE)
    (copy / "probing/tables/rates.py").write_text(RECORDED)
    (copy / "agent/sources/rates.py").write_text(RECORDER)
    (copy / "cli/commands/weather.py").write_text(COMMAND)
    tasks = copy / "cli/tasks.py"
    tasks.write_text(
        tasks.read_text().replace('("list", "overview",', '("list", "weather", "overview",')
    )
    return copy


def test_a_table_and_a_command_are_added_as_the_page_says(copy: Path, tmp_path: Path) -> None:
    """Two files make a live table, one file and its name a command; the rest follows."""
    script = ROOT / "tests" / "programs" / "idle.py"
    argv = [sys.executable, "-m", "probing._run", str(script)]
    target = Target(argv, tmp_path / "home", tmp_path, PROBING="all", PYTHONPATH=str(copy))
    try:
        target.wait_for_agent()
        assert _probing(target, copy, "query", "FROM python.weathers", "--format", "json") == [
            {"sky": "blue", "temperature_c": 21}
        ]
        assert _probing(target, copy, "weather", "--format", "json") == [
            {"sky": "blue", "temperature_c": 21}
        ]
        described = _probing(target, copy, "tables", "weathers", "--format", "json")
        assert "How warm it is." in json.dumps(described)
    finally:
        target.reap()


@pytest.mark.torch
def test_a_recorded_table_is_added_as_the_page_says(copy: Path, tmp_path: Path) -> None:
    """Two files make a recorded table: its ring is made, its source starts and is reported on."""
    target = start_training(home=tmp_path / "home", cwd=tmp_path, PYTHONPATH=str(copy))
    try:
        sql = "SELECT count(*) >= 2 AS grew, max(largest) > 0 AS told FROM python.rates"
        assert _probing(target, copy, "query", sql, "--format", "json") == [
            {"grew": True, "told": True}
        ]
        sql = "SELECT state, \"table\" FROM probing.sources WHERE source = 'rates'"
        assert _probing(target, copy, "query", sql, "--format", "json") == [
            {"state": "on", "table": "python.rates"}
        ]
    finally:
        target.reap()


def _probing(target: Target, copy: Path, *words: str) -> object:
    """What a command of the copy prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "probing", str(target.pid), *words],
        cwd=target.cwd,
        env={**target.env, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
