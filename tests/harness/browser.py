"""A real Chromium without a window, driven by its own protocol; it keeps what went wrong in a page.

Rules of this file: one browser for each use, with a profile of its own, always ended. A page is
waited for by a fact that is true in it, with a deadline.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.harness.targets import DEADLINE_S, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
_PAUSE_S = 0.1
"""Between two looks at a page: each has a processor of its own to take from what is waited for."""
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-default-apps", "--disable-extensions", "--mute-audio",
)  # fmt: skip


class Browser:
    """A browser with one page.

    Attributes:
        faults: What the page has complained of: errors of its console and its script.
        requests: Every address that it has asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._loop = asyncio.new_event_loop()
        assert CHROMIUM is not None
        self._program = subprocess.Popen(
            [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        port = folder / "DevToolsActivePort"
        wait_until(
            lambda: port.exists() and port.read_text().count("\n") > 0, "a browser", DEADLINE_S
        )
        self._port = int(port.read_text().split()[0])
        self._loop.run_until_complete(self._connect())

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(self._session.close())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait(DEADLINE_S)
        self._loop.close()

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page; one that is a promise is awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def text(self) -> str:
        """All that a person can read in the page."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for(self, code: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until an expression is true in the page; one that fails is not true yet."""
        tried = f"(() => {{ try {{ return Boolean({code}) }} catch {{ return false }} }})()"
        try:
            wait_until(lambda: self._is_true(tried), code, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{code} in:\n{self.text()}\n{self.faults}") from error

    def _is_true(self, code: str) -> bool:
        """Whether it is, after a pause where it is not."""
        found = bool(self.evaluate(code))
        time.sleep(0 if found else _PAUSE_S)
        return found

    def press(self, key: str, *, modifiers: int = 0) -> None:
        """Press a key; 2 is Ctrl."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers)

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move the mouse, press or release its button."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def show(self, *, theme: str, width: int, height: int = 1000) -> None:
        """Have the page be so large, in the dark or the light."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """Write a picture of the page."""
        answer = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; what happens meanwhile is kept."""
        return self._loop.run_until_complete(self._call(method, parameters))

    async def _connect(self) -> None:
        self._session = aiohttp.ClientSession()
        end, pages = time.monotonic() + DEADLINE_S, list[dict[str, Any]]()
        while not pages:  # it listens before it has a page
            assert time.monotonic() < end, "no page of the browser"
            await asyncio.sleep(_PAUSE_S)
            async with self._session.get(f"http://127.0.0.1:{self._port}/json/list") as answer:
                pages = [one for one in await answer.json() if one["type"] == "page"]
        self._socket = await self._session.ws_connect(
            pages[0]["webSocketDebuggerUrl"], max_msg_size=0
        )
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._call(f"{domain}.enable", {})

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self._socket.receive(DEADLINE_S)).data)
            if message.get("id") == number:
                if "error" in message:
                    raise AssertionError(message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._keep(message.get("method", ""), message.get("params", {}))

    def _keep(self, method: str, told: dict[str, Any]) -> None:
        """Keep what a page must not do, and what it asks for."""
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(told["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.faults.append(json.dumps(told["args"]))
        elif method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.faults.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser that is ended at the end."""
    started = Browser(folder / "profile")
    try:
        yield started
    finally:
        started.close()
