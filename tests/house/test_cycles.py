"""No module imports itself through others: not when it is loaded, not late, not for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.house.test_lengths import modules

Imports = dict[str, set[str]]
"""The modules that each module imports."""


def named(path: str) -> str:
    """What a file is called once it is installed."""
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] == "probing" else ("probing", *parts))


def imported_by(name: str, source: str, *, is_package: bool) -> Iterator[tuple[str, str]]:
    """From where a module imports which names, wherever in its text."""
    package = name.split(".") if is_package else name.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((origin, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def graph_of(sources: dict[str, str]) -> Imports:
    """Who imports whom, of some files by their paths; a name in a package may be a module."""
    known = {named(path) for path in sources}
    graph: Imports = {name: set() for name in known}
    for path, source in sources.items():
        name, is_package = named(path), path.endswith("__init__.py")
        for origin, what in imported_by(name, source, is_package=is_package):
            inner = f"{origin}.{what}"
            graph[name].add(inner if inner in known else origin)
        graph[name] = (graph[name] & known) - {name}
    return graph


def cycle_in(graph: Imports) -> list[str]:
    """The modules of one cycle; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize(
    "line",
    [
        "from .b import y",
        "def late():\n    from . import b",
        "if TYPE_CHECKING:\n    from .b import y",
    ],
)
def test_a_cycle_is_found(line: str) -> None:
    """Wherever an import stands, a cycle through it is one."""
    sources = {
        "agent/__init__.py": "",
        "agent/a.py": line,
        "agent/b.py": "import probing.agent.a",
        "probing/c.py": "from .agent import a",
    }
    assert set(cycle_in(graph_of(sources))) == {"probing.agent.a", "probing.agent.b"}
    assert cycle_in(graph_of({**sources, "agent/b.py": ""})) == []


def test_no_module_imports_itself_through_others() -> None:
    """Among all modules of the product no import leads back to where it began."""
    graph = graph_of(dict(modules()))
    assert len(graph) > 500
    assert sum(map(len, graph.values())) > 2000
    assert cycle_in(graph) == []
