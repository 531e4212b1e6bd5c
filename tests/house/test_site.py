"""The documentation as a site: whole, without a link that leads nowhere, and on its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT

pytestmark = pytest.mark.nightly

DOCS = ROOT / "docs"
SITE = [sys.executable, str(DOCS / "build_site.py")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this version, beside one of an older version."""
    folder = tmp_path_factory.mktemp("site")
    old = folder / "0.0.9"
    old.mkdir()
    (old / "index.html").write_text("old")
    done = subprocess.run(
        [*SITE, str(folder)], capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    index = Path(done.stdout.strip())
    assert f"url={index.parent.name}/" in (folder / "index.html").read_text()
    return index.parent


def test_every_page_is_in_it(site: Path) -> None:
    """Each can be reached from the first one's tree, and found by the search."""
    wanted = {page.relative_to(DOCS).with_suffix("") for page in DOCS.rglob("*.md")}
    pages = {str(page) for page in wanted if page.parts[0] != "changes"}
    index = (site / "index.html").read_text()
    assert {p for p in pages if f'href="{p}.html"' not in index} == {"index"}
    found = json.loads(
        re.sub(r"^Search\.setIndex\((.*)\)$", r"\1", (site / "searchindex.js").read_text())
    )
    assert set(found["docnames"]) == pages
    assert "nccl" in found["terms"]


def test_programs_find_all_pages_in_one_file(site: Path) -> None:
    """Each under its path, and the list of them in the form of llmstxt.org."""
    whole = (site / "llms-full.txt").read_text()
    pages = [page for page in DOCS.rglob("*.md") if "changes" not in page.parts]
    assert whole.count("\n# ") >= len(pages)
    for page in pages:
        assert f"<!-- {page.relative_to(DOCS)} -->\n\n{page.read_text()}" in whole
    assert (site / "llms.txt").read_text() == (DOCS / "llms.txt").read_text()


def test_nothing_comes_from_elsewhere(site: Path) -> None:
    """A machine without a way out shows it whole."""
    loaded = re.compile(r'<(?:script|img|link|iframe)\b[^>]*(?:src|href)="([^"]*)"')
    for page in site.rglob("*.html"):
        for place in loaded.findall(page.read_text()):
            assert "//" not in place, f"{page.name} loads {place}"
            name = place.partition("#")[0].partition("?")[0]
            assert (page.parent / name).exists(), f"{page.name} loads {place}"


def test_versions_lead_to_each_other(site: Path) -> None:
    """From any page, also one in a folder."""
    page = site / "how-to" / "doctor.html"
    assert 'href="../../0.0.9/index.html"' in page.read_text()
    assert (page.parent / "../../0.0.9/index.html").exists()


def test_a_link_that_leads_nowhere_fails(tmp_path: Path) -> None:
    """With the page and the line."""
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "probing").mkdir()
    shutil.copy(ROOT / "probing" / "_version.py", tmp_path / "probing")
    with (tmp_path / "docs" / "how-to" / "nan.md").open("a") as page:
        page.write("\n[There](no-such-page.md)\n")
    argv = [sys.executable, str(tmp_path / "docs" / "build_site.py"), str(tmp_path / "site")]
    failed = subprocess.run(
        argv, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False
    )
    assert failed.returncode == 1
    assert re.search(r"nan\.md:\d+.*no-such-page", failed.stderr)
