"""Who may import whom: the contracts hold, and they bite."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target

FOLDERS = ("probing", "agent", "cli")

LAYERS = "layers"
TERMINAL = "the terminal imports neither agent nor torch"
AGENT = "the agent imports neither SQL engine nor terminal"
AIOHTTP = "the terminal imports no aiohttp"

VIOLATIONS = [
    ("probing/safety/guard.py", "from ..cli import group", LAYERS, "guard -> probing.cli.group"),
    ("agent/recording/source.py", "import duckdb", AGENT, "source -> duckdb"),
    ("probing/ring/writer.py", "import numpy", AGENT, "writer -> numpy"),
    ("agent/live/live.py", "import pyarrow", AGENT, "live -> pyarrow"),
    ("agent/sources/stacks/look.py", "import numpy", AGENT, "look -> numpy"),
    (
        "probing/server/server.py",
        "from ..sql.engine import Engine",
        AGENT,
        "server -> probing.sql.engine",
    ),
    ("probing/server/server.py", "import rich", AGENT, "server -> rich"),
    ("cli/group.py", "from probing.agent import lifecycle", TERMINAL, "-> probing.agent.lifecycle"),
    ("cli/output/terminal.py", "import torch", TERMINAL, "terminal -> torch"),
    ("probing/client/base.py", "import torch", TERMINAL, "base -> torch"),
    ("cli/ask/replies.py", "import aiohttp", AIOHTTP, "replies -> aiohttp"),
    (
        "probing/client/base.py",
        "from ..cli.output import terminal",
        LAYERS,
        "-> probing.cli.output.terminal",
    ),
    ("probing/rundir/folders.py", "from ..agent import state", LAYERS, "-> probing.agent.state"),
    (
        "probing/messages/common.py",
        "from ..client.base import connect",
        LAYERS,
        "common -> probing.client.base",
    ),
    ("probing/newcomer.py", "", LAYERS, "not listed as layers: - probing.newcomer"),
]
"""A file, a line to plant in it, the contract that this breaks, and what is said of it."""

OWN_NAMES = [
    ("import agent", ["agent"]),
    ("from agent.state import Agent", ["agent"]),
    ("def late():\n    import cli.main as main", ["cli"]),
    ("from .agent import state\nfrom . import cli\nfrom probing.agent import state", []),
]
"""Code, and which of the folders' own names it imports."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources, links kept as links."""
    junk = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=junk)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def check_contracts(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the import contracts on the sources in a folder."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120
    )


def plant(path: Path, line: str) -> None:
    """Write a line at the end of a file, or a new file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")


def test_the_contracts_hold() -> None:
    """No module imports what it must not, directly or through others."""
    done = check_contracts(ROOT)
    assert done.returncode == 0, done.stdout


def test_planted_imports_break_their_contracts(tree: Path) -> None:
    """Each kind of forbidden import, or a module without a layer, breaks the contract meant."""
    for file, line, _, _ in VIOLATIONS:
        plant(tree / file, line)
    done = check_contracts(tree)
    assert done.returncode == 1, done.stdout
    titles_and_texts = re.split(r"\n([^\n]+)\n-{4,}\n", done.stdout)[1:]
    told = dict(zip(titles_and_texts[::2], titles_and_texts[1::2], strict=True))
    for _, _, contract, said in VIOLATIONS:
        assert said in " ".join(told[contract].split())


def banned_names(file: str, code: str) -> str:
    """What the linter says about the imports of a file with that name and content."""
    argv = [sys.executable, "-m", "ruff", "check", "--quiet", "--output-format", "concise"]
    argv += ["--select", "TID251", "--stdin-filename", file, "-"]
    done = subprocess.run(
        argv, cwd=ROOT, input=code, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    "file", ["probing/ring/writer.py", "cli/group.py", "probing/client/base.py"]
)
def test_torch_is_banned(file: str) -> None:
    """The linter refuses torch wherever it has no business."""
    assert "TID251" in banned_names(file, "import torch\n")
    assert "TID251" in banned_names(file, "from torch import nn\n")


def test_torch_has_its_place() -> None:
    """The linter lets the agent's sources import torch."""
    assert banned_names("agent/sources/newcomer.py", "import torch\n") == ""


_MAY_NAME = re.compile(r"\b(?:import|from)\s[^\n]*\b(?:agent|cli)\b")
"""Only where this is found is an import to be looked for: to parse all files takes seconds."""


def own_names(code: str) -> list[str]:
    """The imports in a piece of code that call a folder by its own name.

    The linter cannot tell them from relative imports, since it takes the folders for packages.
    """
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    return [top for name in names if (top := name.partition(".")[0]) in ("agent", "cli")]


@pytest.mark.parametrize(("code", "expected"), OWN_NAMES)
def test_a_folders_own_name_is_found(code: str, expected: list[str]) -> None:
    """An absolute import of `agent` or `cli` is found at any depth, and no other import is."""
    assert own_names(code) == expected


def test_no_folder_is_imported_by_its_own_name() -> None:
    """No file says `import agent` or `import cli`: installed, those names do not exist."""
    folders = (*FOLDERS, "tests", "examples", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 50
    texts = {path: path.read_text("utf-8") for path in files}
    assert [p for p, text in texts.items() if _MAY_NAME.search(text) and own_names(text)] == []


def devices_named_in(code: str) -> list[str]:
    """What in a piece of code is the business of the seam for accelerators alone."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            # `torch.version.cuda` and `torch.backends.cuda` start no device.
            of = getattr(node.value, "attr", "")
            is_api = node.attr in {"cuda", "xpu"} and of not in {"version", "backends"}
            found += [node.attr] if is_api or node.attr.startswith(("_cuda_", "nvml")) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_api = node.value.startswith(("torch.cuda", "torch.xpu", "_cuda_"))
            found += [node.value] if is_api else []
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name == "pynvml"]
    return found


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("torch.cuda.synchronize()", ["cuda"]),
        ("sys.modules['torch.cuda']", ["torch.cuda"]),
        ("from x import y\nimport pynvml\npynvml.nvmlInit()", ["pynvml", "nvmlInit"]),
        ("torch._C._cuda_getDevice()", ["_cuda_getDevice"]),
        ("torch.version.cuda, torch.backends.cuda.matmul, 'cuda:0', 'cuda'", []),
    ],
)
def test_the_business_of_the_seam_is_found(code: str, expected: list[str]) -> None:
    """However it is written."""
    assert sorted(devices_named_in(code)) == sorted(expected)


def test_one_package_names_the_devices() -> None:
    """No other part of the agent asks CUDA or NVML anything."""
    seam = ROOT / "agent" / "sources" / "accelerator"
    named = {
        str(path.relative_to(ROOT)): devices_named_in(path.read_text("utf-8"))
        for path in (ROOT / "agent").rglob("*.py")
        if seam not in path.parents
    }
    assert {path: names for path, names in named.items() if names} == {}


@pytest.mark.torch
def test_a_training_that_was_asked_everything_loads_no_engine(training: Target) -> None:
    """After a query, a stack and an eval, the training process holds nothing of the terminal's."""
    assert training.run(str(training.pid), "query", "SELECT 1").returncode == 0
    assert training.run(str(training.pid), "backtrace").returncode == 0
    names = ("duckdb", "pyarrow", "click", "rich", "probing.cli", "agent", "cli")
    code = f"import sys; print([name for name in {names} if name in sys.modules])"
    done = training.run(str(training.pid), "eval", code)
    assert done.stdout.strip() == "[]", done.stderr
