"""The line that is injected, run in every kind of ``__main__``."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from probing.attach.injectors.injected.script import injected_code

pytestmark = pytest.mark.anypython

MAINS: dict[str, dict[str, Any]] = {
    "a script's": {"__builtins__": builtins},
    "one made by runpy, as of a spawned worker": {"__builtins__": builtins.__dict__},
    "with names replaced": {"__builtins__": builtins, "open": None, "exec": None, "b": 1},
}


@pytest.mark.parametrize("names", MAINS.values(), ids=MAINS)
def test_it_runs_the_script_and_leaves_no_name_behind(
    names: dict[str, Any], tmp_path: Path
) -> None:
    """The script has names of its own; those of ``__main__`` are the same before and after."""
    script, mark = tmp_path / "it's a script.py", tmp_path / "mark"
    script.write_text(f"x = 1\nopen({str(mark)!r}, 'x').close()\n")
    main = dict(names)
    exec(injected_code(str(script)), main)
    assert mark.exists()
    assert main == names


def test_it_does_nothing_once_the_script_is_gone(tmp_path: Path) -> None:
    """Neither an error nor a name."""
    main: dict[str, Any] = {"__builtins__": builtins}
    exec(injected_code(str(tmp_path / "gone.py")), main)
    assert main == {"__builtins__": builtins}
