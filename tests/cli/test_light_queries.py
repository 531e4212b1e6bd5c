"""A short question loads only what answers it; modules are counted, never time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from probing.ring.native import IN_C
from probing.sql.database import IS_KNOWN
from tests.harness.sql_fixtures import recorded_folder
from tests.harness.targets import clean_env

pytestmark = [
    pytest.mark.anypython,
    pytest.mark.skipif(IN_C is None or not IS_KNOWN, reason="libraries take the place of both"),
]

_HEAVY = frozenset(
    {"aiohttp", "asyncio", "duckdb", "email", "http", "numpy", "pandas", "prompt_toolkit",
     "pyarrow", "rich", "ssl", "torch", "zipfile"}
)  # fmt: skip
_MOST_OF_OURS = 160
_LINE = re.compile(r"^import time: .*\| +(\S+)$", re.MULTILINE)


def _modules(folder: Path, home: Path, *words: str) -> list[str]:
    """What a command that ends well has imported."""
    env = {**clean_env(home), "PROBING_PAGER": "cat"}
    argv = [sys.executable, "-X", "importtime", "-m", "probing", os.fspath(folder), *words]
    done = subprocess.run(
        argv, env=env, cwd=home, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
    return _LINE.findall(done.stderr)


@pytest.mark.parametrize(
    ("form", "sql"),
    [
        ("table", "SELECT 1"),
        ("json", "SELECT module, stage, max(duration) FROM torch_trace GROUP BY ALL"),
        ("csv", "SELECT * FROM steps JOIN torch_trace USING (step)"),
    ],
)
def test_a_question_loads_no_library_but_the_engine(tmp_path: Path, form: str, sql: str) -> None:
    """Tables, JSON and CSV of a record come without libraries of arrays, screens and TLS."""
    folder = recorded_folder(tmp_path)
    loaded = _modules(folder.path, tmp_path, "query", "--format", form, sql)
    assert "_duckdb" in loaded
    assert _HEAVY.isdisjoint(name.partition(".")[0] for name in loaded)
    assert len({name for name in loaded if name.startswith("probing")}) <= _MOST_OF_OURS


def test_other_answers_still_come_by_arrow(tmp_path: Path) -> None:
    """Types that Python's values do not hold whole, and Arrow files, are answered by pyarrow."""
    folder = recorded_folder(tmp_path)
    loaded = _modules(folder.path, tmp_path, "query", "SELECT list(step) FROM steps")
    assert {"pyarrow", "duckdb"} <= set(loaded)
