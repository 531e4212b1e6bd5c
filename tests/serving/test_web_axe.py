"""What axe-core has to say of the page: nothing serious of any view, light or dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.harness.browser import CHROMIUM, Browser, browser
from tests.harness.targets import Target
from tests.harness.viewers import viewer
from tests.harness.web import Web, needs_page

pytestmark = [
    pytest.mark.torch,
    pytest.mark.browser,
    pytest.mark.nightly,
    needs_page,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

GRAVE = ("serious", "critical")
READY = {
    "processes": "document.querySelector('tr[data-endpoint]')",
    "steps": "document.querySelector('.uplot')",
    "step": "document.querySelector('.told')",
    "stacks": "document.querySelector('.thread')",
    "stacks&form=ranks": "document.querySelector('.thread')",
    "stacks&form=samples": "document.querySelector('.told')",
    "memory": "document.querySelector('.uplot')",
    "model": "document.querySelector('.tree')",
    "sql": "document.querySelector('.cm-content')",
    "doctor": "document.querySelector('h3')",
    "act": "document.querySelector('textarea')",
}
"""The views, and by what each is there."""


@pytest.fixture(scope="module")
def page(served: Web, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page, opened by its link, and axe-core in it."""
    with browser(tmp_path_factory.mktemp("browser")) as started:
        started.open(served.link)
        started.wait_for(READY["processes"])
        started.evaluate((viewer("axe-core") / "axe.min.js").read_text() + ";0")
        yield started


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("view", list(READY))
def test_nothing_serious(view: str, theme: str, page: Browser) -> None:
    """Names, roles, contrast, order of headings: no violation that is serious or critical."""
    page.show(theme=theme, width=1280)
    of = page.evaluate("document.querySelector('header select option:nth-child(2)').value")
    name, _, part = view.partition("&")
    page.evaluate(f"location.hash = '#/{name}?of={quote(of, safe='')}&{part}'")
    page.wait_for(f"document.documentElement.dataset.theme === '{theme}'")
    page.wait_for(READY[view])
    if name == "sql":
        page.evaluate("document.querySelector('button.main').click()")
        page.wait_for("document.querySelector('.grid tbody tr')")
    assert grave(page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_in_a_report(
    theme: str, page: Browser, ranks: list[Target], tmp_path: Path
) -> None:
    """The same of a report in one file."""
    path = tmp_path / "run.html"
    assert ranks[0].run(str(ranks[0].pid), "report", "-o", str(path)).returncode == 0
    back = page.evaluate("location.href")
    page.show(theme=theme, width=1280)
    page.open(path.as_uri())
    page.wait_for("document.querySelector('.uplot') && document.querySelector('.told')")
    axe = (viewer("axe-core") / "axe.min.js").read_text() + ";0"
    page.evaluate(axe)
    assert grave(page) == []
    page.open(back)
    page.wait_for("document.querySelector('header select option:nth-child(2)')")
    page.evaluate(axe)


def grave(page: Browser) -> list[str]:
    """What axe-core finds to be serious or critical, with where."""
    found = page.evaluate("axe.run(document).then((found) => JSON.stringify(found.violations))")
    violations: list[dict[str, Any]] = json.loads(found)
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:200]} {node['failureSummary']}"
        for one in violations
        for node in one["nodes"]
        if one["impact"] in GRAVE
    ]
