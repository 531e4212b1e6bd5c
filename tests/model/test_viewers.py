"""What `profile` writes, opened in speedscope as people open it: in a real browser.

Perfetto's own trace processor is fetched at run time from where no registry is (the package
`perfetto` has none in it, nor has Debian or npm), and Chromium's own `chrome://tracing` does not
load without a window: their format is opened by speedscope, too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.harness.browser import CHROMIUM, Browser, browser
from tests.harness.targets import Target, start_program
from tests.harness.viewers import viewer

pytestmark = [
    pytest.mark.torch,
    pytest.mark.browser,
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

IS_TAB = "one => one.innerText.trim().endsWith('Sandwich')"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training that goes on."""
    folder = tmp_path_factory.mktemp("target")
    started = start_program("profiled", "forever", home=folder / "home", cwd=folder)
    started.wait_for_output("ready")
    started.wait_for_agent()
    yield started
    started.reap()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all of them."""
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


STEPS, SAMPLES = ("--steps", "1"), ("--sampling", "100", "--seconds", "1", "--idle")


@pytest.mark.parametrize("suffix", ["speedscope.json", "trace.json", "pb.gz"])
@pytest.mark.parametrize(
    ("words", "shown"), [(STEPS, "aten::addmm"), (SAMPLES, "<module>")], ids=["steps", "samples"]
)
def test_speedscope_opens(
    words: tuple[str, ...], shown: str, suffix: str, target: Target, opened: Browser
) -> None:
    """The functions of the file are in speedscope's table, and it complains of nothing."""
    name = f"{words[0]}.{suffix}".strip("-")
    done = target.run(str(target.pid), "profile", *words, "-o", name)
    assert done.returncode == 0, done.stderr
    data = base64.b64encode((target.cwd / name).read_bytes()).decode()
    script = target.cwd / "profile.js"
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(name)}, {json.dumps(data)})")
    opened.open("about:blank")
    opened.wait_for("location.href === 'about:blank'")
    opened.faults.clear()
    page = viewer("speedscope") / "dist" / "release" / "index.html"
    opened.open(f"{page.as_uri()}#localProfilePath={script}")
    tabs = f"[...document.querySelectorAll('div')].filter({IS_TAB})"
    opened.wait_for(f"{tabs}.length")
    opened.evaluate(f"{tabs}.pop().click()")
    opened.wait_for(f"document.body.innerText.includes({json.dumps(shown)})")
    # There is no graphics card; of ends at one moment speedscope tells which it has put in order.
    told = ("GL", "Tried to end")
    assert [one for one in opened.faults if not any(word in one for word in told)] == []
