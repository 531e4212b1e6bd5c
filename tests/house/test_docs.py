"""The documentation: generated pages are fresh, blocks run as they stand, links lead somewhere."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from probing.cli.tasks import COMMANDS
from probing.errors import error_classes
from probing.messages.routes import ROUTES
from probing.settings import SETTINGS
from probing.tables import TABLES
from tests.faults import FAULTS, RESULTS, cases_of, read_results
from tests.harness import warm
from tests.harness.targets import DEADLINE_S, ROOT, Target, start_training, wait_until

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]
HANG = DOCS / "how-to" / "hang.md"  # its commands are for jobs that hang: see test_hang_page.py
ONE_FILE = DOCS / "how-to" / "one-file.md"  # they need a file made for a release: see test_pyz.py
NOTEBOOKS = DOCS / "how-to" / "notebooks.md"  # a notebook runs it: see test_notebooks.py
ELSEWHERE = {HANG, ONE_FILE, NOTEBOOKS}
HOW_TO = [page for page in (DOCS / "how-to").glob("*.md") if page not in ELSEWHERE]
RUN_PAGES = [ROOT / "README.md", *(DOCS / "tutorial").glob("*.md"), *HOW_TO]

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
UNQUOTED = re.compile(r"\bpip install(?:[ \t]+[^\s'\"`]+)*?[ \t]+[^\s'\"`]*[\w.}]\[\w")
"""Brackets that zsh takes as a pattern, which no file fits."""
WITH_COMMANDS = frozenset(("", ".ipynb", ".js", ".md", ".py", ".sh", ".txt", ".yaml", ".yml"))
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, *languages: str) -> Iterator[Block]:
    """The fenced blocks of a page in some languages."""
    text = page.read_text("utf-8")
    for match in FENCE.finditer(text):
        if match[1] in languages:
            line = text.count("\n", 0, match.start()) + 2
            yield Block(page=page, line=line, language=match[1], code=match[2])


RUNNABLE = [block for page in RUN_PAGES for block in blocks(page, "bash", "python")]
_BY_DAY = 1
_CONNECTS = re.compile(r"import probing$|job = probing\.connect\(").match


def _cases() -> Iterator[object]:
    """All blocks; those of a how-to page after its first ones run at night."""
    for page in RUN_PAGES:
        for number, block in enumerate(blocks(page, "bash", "python")):
            is_late = page in HOW_TO and number >= _BY_DAY
            marks = [pytest.mark.nightly] if is_late else []
            yield pytest.param(block, id=str(block), marks=marks)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training for these tests alone: the blocks stop it, and change what it does."""
    cwd = tmp_path_factory.mktemp("docs")
    target = start_training("--pause", "0.2", home=cwd / "home", cwd=cwd)
    yield target
    target.reap()


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `probing` and `python`, as an installation puts them on PATH."""
    return warm.commands_on_path(tmp_path_factory.mktemp("docs"))


def _is_settled(target: Target) -> bool:
    """Whether some of its rows are those of `probing.history.settled`."""
    card = target.folder.read_card()
    return card is not None and target.step() > 20 and time.time_ns() - card.started_ns > 9e9


@pytest.mark.torch
@pytest.mark.parametrize("block", [*_cases()])
def test_a_block_runs_as_it_stands(
    block: Block, reader: Target, commands: Path, tmp_path: Path
) -> None:
    """Every bash or python block does what it says against a real training, and exits with 0."""
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    env = {**reader.env, "PATH": path, "PID": str(reader.pid)}
    if '"export"' in block.code:  # whose rows change no more a while after they were written
        wait_until(lambda: _is_settled(reader), "rows to export")
    if block.language == "bash":
        argv = ["bash", "-euo", "pipefail", "-c", block.code]
    else:
        given = "\n".join([f"pid = {reader.pid}", *_connecting(block), block.code])
        argv = [sys.executable, "-W", "error", "-c", given]
    code, out, err = run_in_group(argv, tmp_path, env)
    assert code == 0, out + err
    assert "Traceback" not in err
    assert reader.process.poll() is None


def _connecting(block: Block) -> list[str]:
    """What a reader of the page has typed before: the lines by which its first block connects."""
    first = next(blocks(block.page, "python"))
    return [] if first == block else [line for line in first.code.split("\n") if _CONNECTS(line)]


def run_in_group(argv: list[str], cwd: Path, env: dict[str, str]) -> tuple[int, str, str]:
    """Run a program, and end what it has left in the background, as a block that fails does."""
    paths = cwd / ".out", cwd / ".err"
    with (
        paths[0].open("wb") as out,
        paths[1].open("wb") as err,
        subprocess.Popen(
            argv, cwd=cwd, env=env, stdout=out, stderr=err, start_new_session=True
        ) as process,
    ):
        try:
            code = process.wait(2 * DEADLINE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return code, paths[0].read_text("utf-8"), paths[1].read_text("utf-8")


def test_the_pages_have_blocks() -> None:
    """The search for blocks finds some on every page that is read with a terminal at hand."""
    assert {block.page for block in RUNNABLE} == set(RUN_PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file, and its anchor a heading of that file."""
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{target} is not there"
        if anchor:
            assert anchor in anchors(path), f"{path.name} has no heading for #{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown renderers make them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize(
    ("command", "is_safe"),
    [
        ("pip install probing-agent[otel]", False),
        ("python -m pip install -q torch .[cli]", False),
        ("pip install 'probing-agent[otel]'", True),
        ('pip install ".[cli]"', True),
        ("pip install probing-agent` and [a link](page.md)", True),
    ],
)
def test_brackets_in_a_command_are_found(command: str, *, is_safe: bool) -> None:
    """Where a shell would see them, and not behind the command."""
    assert (UNQUOTED.search(command) is None) is is_safe


def test_no_command_has_brackets_that_a_shell_takes_for_its_own() -> None:
    """In pages, messages and scripts alike: what is to be typed can be typed in zsh."""
    folders = ("agent", "cli", "docs", "examples", "probing", "scripts", "tests")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    found = []
    for path in {*PAGES, *files} - {Path(__file__)}:
        if path.suffix in WITH_COMMANDS and "node_modules" not in path.parts and path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path}: {match[0]}" for match in UNQUOTED.finditer(text)]
    assert not found


def test_only_settings_that_exist_are_mentioned() -> None:
    """Every PROBING_ variable that a page names is declared."""
    known = {setting.env for setting in SETTINGS}
    for page in PAGES:
        mentioned = set(re.findall(r"\bPROBING(?:_[A-Z]+)*\b", page.read_text("utf-8")))
        assert mentioned <= known, page


@pytest.fixture(scope="module")
def generate() -> Iterator[ModuleType]:
    """The program that writes the reference pages."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        spec.loader.exec_module(module)
        yield module


def test_the_reference_is_fresh(generate: ModuleType) -> None:
    """Each reference page is what its declarations say now."""
    assert generate.main(["--check"]) == 0


def test_a_stale_page_is_named(
    generate: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check fails for a page that was edited or is missing, and says which."""
    generate.write(tmp_path)
    assert generate.stale_pages(tmp_path) == []
    with (tmp_path / "reference" / "tables.md").open("a") as page:
        page.write("An edit by hand.\n")
    (tmp_path / "reference" / "errors.md").unlink()
    assert generate.main(["--check", "--folder", str(tmp_path)]) == 1
    named = re.findall(r"(\w+)\.md is stale", capsys.readouterr().err)
    assert named == ["tables", "errors"]


def test_nothing_declared_is_left_out() -> None:
    """Every table, column, setting, command, route and error has its line in the reference."""
    text = {page.stem: page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")}
    for table in TABLES:
        assert f"## {table.full_name}\n" in text["tables"]
        for column in table.columns:
            assert f"- `{column.name}` " in text["tables"]
    for setting in SETTINGS:
        assert f"- `{setting.env}` (" in text["settings"]
    for command in COMMANDS:
        assert f"## probing {command}\n" in text["cli"]
    for route in ROUTES:
        assert f"- `{route.method} {route.path}`" in text["http"]
    for error in error_classes()[1:]:
        assert f"- `{error.code}` `" in text["errors"]


def test_what_the_faults_reached_is_kept() -> None:
    """Each fault that is declared has what its tests reached on record, and each case held."""
    results = read_results(RESULTS)
    assert list(results) == [fault.id for fault in FAULTS]
    for fault in FAULTS:
        cases = cases_of(results, fault)
        assert cases, fault.id
        assert all(case.is_kept for case in cases), fault.id


def test_the_blocks_of_a_page_are_found_with_their_lines(tmp_path: Path) -> None:
    """A block is known by the line its code begins at, so that a failure can be found."""
    page = tmp_path / "page.md"
    page.write_text(
        textwrap.dedent("""\
            # Title

            ```text
            not run
            ```

            ```bash
            probing list
            ```
            """)
    )
    (block,) = blocks(page, "bash")
    assert (block.line, block.code) == (8, "probing list\n")
