"""The page of `probing web` about records that were made: of wrapped models, of very many steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.tables import TABLES_BY_NAME
from tests.harness.browser import CHROMIUM, Browser, browser
from tests.harness.page import view
from tests.harness.ring_writer import RingWriter, save_names
from tests.harness.targets import start_program
from tests.harness.web import Web, needs_page, web

pytestmark = [
    pytest.mark.browser,
    needs_page,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

STEPS = 100
CALLS = [
    ("DistributedDataParallel", "DistributedDataParallel", 0, False),
    ("Net", "Net", 1, False),
    ("blocks.0", "CheckpointWrapper", 2, False),
    ("blocks.0", "Block", 3, False),
    ("blocks.0.up", "Linear", 4, False),
    ("blocks.0", "Block", 0, True),
    ("blocks.0.up", "Linear", 1, True),
]
"""The modules that a step calls, the last two once more in its backward pass."""
TREE = [
    "Net|DistributedDataParallel",
    "Net|Net",
    "blocks|",
    "0|CheckpointWrapper",
    "Block|Block",
    "up|Linear",
]
IN_FRONT = "{ window.isBehind = false; document.dispatchEvent(new Event('visibilitychange')) }"
BEHIND = """
window.isBehind = true;
Object.defineProperty(document, "hidden", { get: () => window.isBehind });
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """The command about a process that was killed in the middle of a step."""
    folder = tmp_path_factory.mktemp("ended")
    idle = start_program("idle", home=folder / "home", cwd=folder, PROBING="all")
    try:
        idle.wait_for_agent()
        found = idle.folder
    finally:
        idle.reap()
    write_steps(found.ring("steps"), STEPS)
    write_calls(found.ring("torch_trace"), found.names)
    with web(folder / "in", folder / "home", str(found.path)) as started:
        yield started


@pytest.fixture
def page(tmp_path: Path, served: Web) -> Iterator[Browser]:
    """A browser, with nothing in it at first and no complaint at the end."""
    with browser(tmp_path) as started:
        started.show(theme="light", width=1280)
        yield started
        assert started.faults == []


def test_what_wraps_a_model_holds_it(page: Browser, served: Web) -> None:
    """Wrappers are above what they wrap, of a model and of a part of it."""
    page.open(served.link)
    page.wait_for("document.querySelector('tr[data-endpoint]')")
    view(page, "model")
    page.wait_for(f"document.querySelectorAll('.tree tbody tr').length === {len(TREE)}")
    cell = "one.cells[%d].innerText.replace('▾', '').trim()"
    rows = "[...document.querySelectorAll('.tree tbody tr')]"
    told = page.evaluate(f"{rows}.map((one) => {cell % 0} + '|' + {cell % 1})")
    assert told == TREE
    indents = page.evaluate(f"{rows}.map((one) => parseFloat(one.cells[0].style.paddingLeft))")
    assert indents == sorted(set(indents))


def test_a_tab_behind_others_is_read_when_it_is_in_front(page: Browser, served: Web) -> None:
    """A page that is not seen asks for nothing; seen, it has the steps of a run that has ended."""
    page.open(served.link)
    page.wait_for("document.querySelector('tr[data-endpoint]')")
    page.call("Page.addScriptToEvaluateOnNewDocument", source=BEHIND)
    page.evaluate("history.replaceState(null, '', document.querySelector('tr a').hash)")
    page.requests.clear()
    page.call("Page.reload")
    page.wait_for("window.isBehind && document.querySelector('header')")
    assert not [one for one in page.requests if "/page/" in one]
    page.evaluate(IN_FRONT)
    page.wait_for(f"document.querySelector('.summary')?.textContent.includes('{STEPS} steps on')")


@pytest.mark.nightly
def test_a_million_steps(page: Browser, tmp_path: Path) -> None:
    """They are drawn as groups with least, mean and most; a part of them as single steps."""
    idle = start_program("idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all")
    try:
        idle.wait_for_agent()
        folder = idle.folder
        idle.kill()
        write_steps(folder.ring("steps"), 1_000_000)
        with web(tmp_path / "in", idle.home, str(folder.path)) as started:
            page.show(theme="dark", width=1280)
            page.open(started.link)
            page.wait_for("document.querySelector('tr[data-endpoint]')")
            view(page, "steps")
            page.wait_for("document.querySelector('.summary')?.textContent.includes('1,000,000')")
            assert "each point 1,250 steps" in page.text()
            view(page, "steps", **{"from": "500000", "to": "500300"})
            page.wait_for("document.body.innerText.includes('each point a step')")
            assert "301 steps on record, 500,000 to 500,300" in page.text()
    finally:
        idle.reap()


def write_steps(path: Path, number: int) -> None:
    """A record of so many steps, which an agent with a large ring would have."""
    writer = RingWriter(TABLES_BY_NAME["steps"], capacity=1 << number.bit_length())
    for step in range(number):
        took_ns = 10_000_000 + step % 97 * 10_000
        loss = 2.0 + math.sin(step / 1e4)
        writer.write(
            step=step, start_ns=step * took_ns, duration_ns=took_ns, loss=loss, loss_finite=1,
            forward_s=0.004, backward_s=0.005, optimizer_s=0.001,
        )  # fmt: skip
    writer.save(path)


def write_calls(ring: Path, names: Path) -> None:
    """One step of a model in wrappers."""
    texts = sorted({name for call in CALLS for name in call[:2]})
    save_names(names, texts)
    writer = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=16)
    place = {text: number for number, text in enumerate(texts, 1)}
    for index, (module, kind, depth, recomputed) in enumerate(CALLS):
        writer.write(
            step=STEPS - 1, module=place[module], stage=0, **{"class": place[kind]},
            root=place["Net"], depth=depth, thread_id=1, start_ns=index * 1000,
            recomputed=recomputed, training=1, duration_ns=900, allocated_bytes=0,
        )  # fmt: skip
    writer.save(ring)
