"""How long modules and functions may be, so that a reader can keep one in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.harness.targets import ROOT

FOLDERS = ("probing", "agent", "cli")
MOST_LINES = 399
MOST_LINES_OF_A_FUNCTION = 40

HOT_PATHS = frozenset(
    {
        ("agent/sources/calls/modules.py", "_make_wrapper"),
        ("agent/sources/calls/modules.py", "call"),
        ("agent/sources/collectives/catching/hot_path.py", "_make_call"),
        ("agent/sources/collectives/catching/hot_path.py", "method"),
        ("agent/sources/collectives/catching/hot_path.py", "make_wait"),
    }
)
"""In one piece, because every call that they make is paid for at every call of the training."""


def modules() -> Iterator[tuple[str, str]]:
    """Each module of the product, with its text."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT)
            if not (name.parts[0] == "probing" and name.parts[1] in {"agent", "cli"}):  # links
                yield name.as_posix(), path.read_text(encoding="utf-8")


def long_functions(source: str) -> Iterator[tuple[str, int]]:
    """The functions in a text that are too long, with their lines beside their docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (first.end_lineno or 0) - first.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield node.name, lines


def test_a_long_function_is_found() -> None:
    """Lines of code count, with the signature; those of the docstring do not."""
    body = "    x = 1\n" * (MOST_LINES_OF_A_FUNCTION - 1)
    doc = '    """One.\n\n    More.\n    """\n'
    assert list(long_functions(f"def just():\n{doc}{body}")) == []
    assert list(long_functions(f"def more():\n{doc}{body}    y = 2\n")) == [("more", 41)]
    inner = "".join(f"    {line}\n" for line in f"async def inner():\n{body}    y = 2".splitlines())
    assert ("inner", 41) in list(long_functions(f"class C:\n{inner}"))


def test_no_module_is_too_long() -> None:
    """Every module of the product has less than 400 lines."""
    found = {name: len(text.splitlines()) for name, text in modules()}
    assert len(found) > 500
    assert {name: lines for name, lines in found.items() if lines > MOST_LINES} == {}


def test_only_the_hottest_paths_are_too_long() -> None:
    """Every other function has at most 40 lines beside its docstring; what is excepted has more."""
    found = {(name, each) for name, text in modules() for each, _ in long_functions(text)}
    assert found == HOT_PATHS


def test_the_links_are_those_that_are_left_out() -> None:
    """The folders beside `probing` are read where they are, and not twice."""
    assert all(Path(ROOT / "probing" / name).is_symlink() for name in ("agent", "cli"))
