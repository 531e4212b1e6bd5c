"""A script may look at all objects that there are, as one does who looks for a leak.

Python cannot finish a tuple that comes item by item, `tuple(f(x) for x in xs)`, while anything else
holds it, and `gc.get_objects()` holds it: the maker gets a SystemError. So what runs in a training
makes tuples of lists.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.tables.records import Table, count
from tests.harness.targets import ROOT

PACKAGE = ROOT / "probing"
ELSEWHERE = frozenset(
    {
        "attach",
        "cli",
        "client",
        "cluster",
        "diagnosis",
        "gateway",
        "history",
        "page",
        "reach",
        "web",
    }
)
"""Folders that no training loads, or next to nothing of."""
BY_ITEM = frozenset({"filter", "iter", "map", "zip"})
ASKED = 30_000


def folders() -> Iterator[Path]:
    """Those whose code runs in a training."""
    found = (path.resolve() for path in PACKAGE.iterdir() if path.name not in ELSEWHERE)
    yield from (path for path in found if path.is_dir() and any(path.glob("*.py")))


def comes_by_item(call: ast.Call) -> bool:
    """Whether it makes a tuple of something that does not say how long it is."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "tuple" and call.args):
        return False
    (of,) = call.args
    is_lazy = isinstance(of, ast.Call) and getattr(of.func, "id", "") in BY_ITEM
    return is_lazy or isinstance(of, ast.GeneratorExp)


def test_no_tuple_is_made_item_by_item() -> None:
    """Nowhere in what a training loads."""
    files = [path for folder in folders() for path in folder.rglob("*.py")]
    assert len(files) > 300
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and comes_by_item(node)
    ]
    assert found == []


@pytest.fixture
def walked() -> Iterator[None]:
    """Another thread looks at all objects, again and again."""
    is_over = threading.Event()
    interval = sys.getswitchinterval()

    def walk() -> None:
        while not is_over.is_set():
            assert not [one for one in gc.get_objects() if one is is_over.wait]

    sys.setswitchinterval(1e-6)
    walker = threading.Thread(target=walk)
    walker.start()
    yield
    is_over.set()
    walker.join()
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("walked")
def test_a_look_at_all_objects_breaks_nothing_of_ours() -> None:
    """Columns of a table are told as often as they are asked; three in 3,000 failed."""
    columns = tuple([count(f"c{place}", "A number.") for place in range(30)])
    table = Table(name="some", doc="Some.", kind="recorded", columns=columns)
    assert {len(table.stored_columns) for _ in range(ASKED)} == {30}
