"""What CONTRIBUTING says is all that it takes to add a table and a command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.harness.targets import DEADLINE_S, ROOT, Target

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


def test_a_table_and_a_command_are_added_as_the_page_says(tmp_path: Path) -> None:
    """Two files make a live table, one file and its name a command; the rest follows."""
    copy = tmp_path / "copy"
    for name in ("probing", "agent", "cli"):
        junk = shutil.ignore_patterns("node_modules")
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=junk)
    (copy / "probing/tables/weathers.py").write_text(TABLE)
    (copy / "agent/sources/weathers.py").write_text(SOURCE)
    (copy / "cli/commands/weather.py").write_text(COMMAND)
    tasks = copy / "cli/tasks.py"
    tasks.write_text(
        tasks.read_text().replace('"list": "list_",', '"list": "list_", "weather": "weather",')
    )
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
