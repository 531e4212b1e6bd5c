"""The tables of offsets are those of the headers of the Python that runs the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from probing.attach.injectors import layouts
from probing.attach.injectors.refusal import CannotInject
from tests.attach.layouts import derive as derivation
from tests.attach.layouts.__main__ import main
from tests.harness.targets import ROOT

VERSION = (sys.version_info[0], sys.version_info[1])

needs_compiler = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
needs_table = pytest.mark.skipif(
    max(layouts.LAYOUTS) < VERSION, reason="newer Pythons publish their offsets themselves"
)

pytestmark = pytest.mark.anypython


@needs_compiler
@needs_table
def test_the_table_is_what_the_headers_say(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m tests.attach.layouts` finds no difference for this interpreter."""
    headers = Path(sysconfig.get_paths()["include"], "internal", "pycore_runtime.h")
    assert headers.exists(), f"gcc is there, but {headers} is not: install Python's headers"
    assert main([sys.executable]) == 0
    assert "equals the table" in capsys.readouterr().out


@needs_compiler
@needs_table
def test_a_difference_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is wrong in any one number makes `python -m tests.attach.layouts` fail."""
    version, layout, bit = derivation.derive(sys.executable)
    assert derivation.equals_the_table(version, layout, bit)
    right = layouts.LAYOUTS[VERSION]
    wrong: dict[str, Any] = dict.fromkeys(right._fields, 7)
    wrong["main_queues"] = (7,)
    wrong["ring"] = right.ring._replace(first=7)
    if not right.main_queues:
        del wrong["main_queues"]
    for name, value in wrong.items():
        monkeypatch.setitem(layouts.LAYOUTS, VERSION, right._replace(**{name: value}))
        assert not derivation.equals_the_table(version, layout, bit), name
    assert main([sys.executable]) == 1
    assert "DIFFERS" in capsys.readouterr().out


@needs_compiler
def test_headers_that_do_not_compile_are_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the compiler says about a field that is not there is shown, and is an error."""
    monkeypatch.setattr(derivation, "_expressions", lambda version: {"x": "offsetof(PyObject, x)"})
    assert main([sys.executable]) == 1
    assert "error" in capsys.readouterr().out


def test_a_python_that_is_missing_is_said(tmp_path: Path) -> None:
    """A path that is no Python is an error with its name."""
    argv = [sys.executable, "-m", "tests.attach.layouts", str(tmp_path / "python")]
    ran = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 1
    assert str(tmp_path / "python") in ran.stdout
    assert "Traceback" not in ran.stderr


def test_an_unknown_release_is_refused() -> None:
    """A release that is not in the table is a refusal, not a guess."""
    with pytest.raises(CannotInject, match=r"of CPython 3\.9 is not known"):
        layouts.layout_for((3, 9))
