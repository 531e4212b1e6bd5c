"""The page of `probing web` in rarer cases: paper, a far server, keys alone, many modules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from probing.tables import TABLES_BY_NAME
from tests.harness.browser import CHROMIUM, Browser, browser
from tests.harness.page import click, view
from tests.harness.ring_writer import RingWriter, save_names
from tests.harness.targets import start_program
from tests.harness.web import Web, needs_page, web

pytestmark = [
    pytest.mark.torch,
    pytest.mark.browser,
    pytest.mark.nightly,
    needs_page,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]

LATENCY_MS = 100
PAPER_PIXELS = 720
DRAWN = "new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame))"
MODULES = 20_000
VIEWS = {
    "steps": "document.querySelectorAll('.uplot canvas').length > 2",
    "step": "document.querySelector('.told')?.textContent.includes('are shown of')",
    "stacks": "document.querySelector('.thread')",
    "memory": "document.querySelector('.uplot canvas')",
    "model": "document.querySelector('.tree tbody tr')",
    "sql": "document.querySelector('.cm-content')",
    "doctor": "document.querySelector('h3')",
    "act": "document.querySelector('h3')",
}
"""The views, and by what each is there."""


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[Browser]:
    """A browser of its own, since what is asked here changes it."""
    with browser(tmp_path) as started:
        started.show(theme="light", width=1280)
        yield started


@pytest.fixture
def page(served: Web, blank: Browser) -> Browser:
    """The page, opened by its link."""
    blank.open(served.link)
    blank.wait_for("document.querySelector('tr[data-endpoint]')")
    return blank


def test_each_view_is_as_wide_as_the_paper(page: Browser) -> None:
    """Printed, nothing reaches beyond the edge, what is to be pressed is gone, and all is light."""
    page.show(theme="dark", width=1280)
    for name, is_there in VIEWS.items():
        view(page, name)
        page.wait_for(is_there)
        page.evaluate(f"{DRAWN}.then(() => 0)")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=PAPER_PIXELS, height=1000, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        page.call("Emulation.setEmulatedMedia", media="print")
        wide = "[...document.querySelectorAll('main *')].filter((one) => one.offsetParent"
        wide += f" && one.getBoundingClientRect().right > {PAPER_PIXELS} + 1)"
        found = page.evaluate(f"{wide}.map((one) => one.outerHTML.slice(0, 200))")
        assert found == [], name
        pressed = "[...document.querySelectorAll('button:not(.head, .fold), nav, input')]"
        assert page.evaluate(f"{pressed}.filter((one) => one.offsetParent).length") == 0, name
        heads = "[...document.querySelectorAll('th')].map((one) => one.innerText.trim())"
        assert name != "model" or {"module", "forward"} <= set(page.evaluate(heads))
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        page.call("Emulation.setEmulatedMedia", media="")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.show(theme="dark", width=1280)
    assert page.call("Page.printToPDF")["data"].startswith("JVBER")  # %PDF


def test_a_far_server_and_the_end_of_both(blank: Browser, tmp_path: Path) -> None:
    """With 100 ms of latency each view is there, also of the record; it says who is gone."""
    target = start_program("hostile_names", home=tmp_path / "home", cwd=tmp_path, PROBING="1")
    try:
        target.wait_for_step(50)
        with web(tmp_path / "in", target.home) as started:
            blank.call(
                "Network.emulateNetworkConditions",
                offline=False, latency=LATENCY_MS, downloadThroughput=-1, uploadThroughput=-1,
            )  # fmt: skip
            blank.open(started.link)
            blank.wait_for("document.querySelector('tr[data-endpoint]')")
            for name, is_there in VIEWS.items():
                view(blank, name)
                blank.wait_for(is_there)
            view(blank, "steps")
            target.kill()
            said = "document.querySelector('.about [role=status]')?.textContent"
            blank.wait_for(f"{said}?.includes('has ended')")
            for name, is_there in VIEWS.items():
                view(blank, name)
                blank.wait_for(is_there)
            # Who was just being asked is gone: that answer alone is none, and is asked for again.
            assert [one for one in blank.faults if "status of 410 (Gone)" not in one] == []
            view(blank, "steps")
            blank.wait_for(VIEWS["steps"])
            started.end()
            gone = "The server of this page does not answer."
            blank.wait_for(
                f"document.querySelector('[role=alert]')?.textContent.includes({json.dumps(gone)})"
            )
            assert blank.evaluate(VIEWS["steps"])
    finally:
        target.reap()


def test_by_keys_alone(page: Browser) -> None:
    """From the top of each view Tab reaches all that can be pressed, and leaves it again."""
    reached = "document.activeElement.matches('body') ? '' : document.activeElement.outerHTML"
    usable = (
        "[...document.querySelectorAll('main :is(a[href], button, select, input, textarea, summary,"
        " canvas[tabindex], .cm-content)')].filter((one) => one.checkVisibility() && !one.disabled"
        " && one.tabIndex >= 0).length"
    )
    for name, is_there in VIEWS.items():
        view(page, name)
        page.wait_for(is_there)
        number = int(page.evaluate(usable))
        page.evaluate("document.activeElement.blur()")
        seen = set()
        for _ in range(3 * number + 20):
            page.call(
                "Input.dispatchKeyEvent",
                type="keyDown",
                key="Tab",
                code="Tab",
                windowsVirtualKeyCode=9,
            )
            page.evaluate("document.activeElement.probed = true")
            seen.add(page.evaluate(reached))
            if page.evaluate(f"{usable.replace('.length', '.every((one) => one.probed)')}"):
                break
        else:
            missed = usable.replace(".length", ".filter((one) => !one.probed)")
            pytest.fail(f"{name}: {page.evaluate(f'{missed}.map((one) => one.outerHTML)')}")


def test_twenty_thousand_modules(blank: Browser, tmp_path: Path) -> None:
    """Those that are seen are in the document, and all can be reached, sorted and searched."""
    idle = start_program("idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all")
    try:
        idle.wait_for_agent()
        folder = idle.folder
        idle.kill()
        write_modules(folder.ring("torch_trace"), folder.names, MODULES)
        with web(tmp_path / "in", idle.home, str(folder.path)) as started:
            blank.open(started.link)
            blank.wait_for("document.querySelector('tr[data-endpoint]')")
            view(blank, "model")
            blank.wait_for(f"document.body.innerText.includes('{MODULES:,} modules')")
            click(blank, "Unfold all")
            blank.wait_for(f"document.querySelector('.tree').ariaRowCount === '{MODULES}'")
            rows = "document.querySelectorAll('.tree tbody tr')"
            assert blank.evaluate(f"{rows}.length") < 100
            blank.evaluate("document.querySelector('.grid').scrollTop = 1e9")
            blank.wait_for(f"[...{rows}].at(-1).ariaRowIndex === '{MODULES}'")
            click(blank, "forward")
            blank.evaluate("document.querySelector('.grid').scrollTop = 0")
            blank.wait_for(f"{rows}[0].ariaRowIndex === '1'")
            search = "document.querySelector('[type=search]')"
            blank.evaluate(
                f"{search}.value = 'block.17.3'; {search}.dispatchEvent(new Event('input'))"
            )
            blank.wait_for(f"[...{rows}].some((one) => one.dataset.module === 'block.17.3')")
            assert blank.faults == []
    finally:
        idle.reap()


def write_modules(ring: Path, names: Path, number: int) -> None:
    """One step of a model of so many modules: its root, blocks, and a hundred in each."""
    inner = [f"block.{index // 100}" + f".{index % 100}" for index in range(number)]
    blocks = dict.fromkeys(name.rpartition(".")[0] for name in inner)
    paths = [*blocks, *inner][: number - 2]  # with the root, and `block` that holds all of them
    texts = ["Model", "Block", *paths]
    save_names(names, texts)
    writer = RingWriter(TABLES_BY_NAME["torch_trace"], capacity=1 << number.bit_length())
    for index in range(len(paths)):
        writer.write(
            step=1, module=3 + index, stage=0, **{"class": 2}, root=1, depth=1, thread_id=1,
            start_ns=index * 1000, recomputed=0, training=1, duration_ns=900, allocated_bytes=0,
        )  # fmt: skip
    writer.save(ring)
