"""A real Prometheus scrapes node servers as docs/how-to/metrics.md has it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, Target, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed"),
]
_SECTION = (
    (ROOT / "docs" / "how-to" / "metrics.md")
    .read_text("utf-8")
    .partition("## Prometheus\n")[2]
    .partition("\n## ")[0]
)


def block(language: str) -> str:
    """The first of that language in the page's section."""
    return _SECTION.partition(f"```{language}\n")[2].partition("\n```")[0]


def configuration(folder: Path, port: int) -> str:
    """That of the page, of this machine's node server."""
    text = block("yaml").replace("/etc/prometheus/probing", str(folder))
    text = text.replace('"node1:9741", "node2:9741"', f'"localhost:{port}"')
    rules = ROOT / "examples" / "prometheus" / "alerts.yml"
    return f"global: {{scrape_interval: 1s}}\n{text.replace('[alerts.yml]', f'[{rules}]')}\n"


class Prometheus:
    """One that runs, and keeps what it scrapes in a folder."""

    def __init__(self, folder: Path, text: str) -> None:
        (folder / "prometheus.yml").write_text(text)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        argv = ["prometheus", f"--config.file={folder}/prometheus.yml"]
        argv += [f"--storage.tsdb.path={folder}/data"]
        argv += [f"--web.listen-address=127.0.0.1:{self._port}"]
        with (folder / "prometheus.log").open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def ask(self, path: str) -> dict[str, object]:
        """An answer of its API; empty until it answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{path}") as answer:
                return dict(json.load(answer)["data"])
        except OSError:
            return {}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Target | Prometheus]]:
    """What is to be ended afterwards."""
    found: list[Target | Prometheus] = []
    yield found
    for one in found:
        one.process.kill()
        one.process.wait(DEADLINE_S)


def test_the_example_scrapes(
    program: Callable[..., Target], started: list[Target | Prometheus], tmp_path: Path
) -> None:
    """By https, with the certificate and token of the page: also figures of the script itself."""
    training = program("marked", "with_agent", PROBING="1")
    training.wait_for_output("ready")
    folder = tmp_path / "made"
    folder.mkdir()
    made, _, served = block("text").partition("PROBING_READ_TOKEN=")
    subprocess.run(["bash", "-euc", made], cwd=folder, check=True, capture_output=True)
    words = served.partition(" probing serve ")[2].replace("0.0.0.0:9741", "0.0.0.0:0").split()
    argv = [sys.executable, "-m", "probing", "serve", *words]
    token = (folder / "read_token").read_text().strip()
    node = Target(argv, training.home, folder, PROBING_READ_TOKEN=token, PROBING_EXPORT_METRICS="*")
    started.append(node)
    node.wait_for_output("listening on")
    port = re.search(r"listening on \S+:(\d+);", node.output)
    assert port is not None, node.output
    prometheus = Prometheus(folder, configuration(folder, int(port[1])))
    started.append(prometheus)
    wait_until(lambda: '"up"' in json.dumps(prometheus.ask("targets")), "a scrape", DEADLINE_S)

    def figures() -> str:
        text = json.dumps(prometheus.ask("query?query=probing_metric"))
        return text if '"pid"' in text else ""

    said = wait_until(figures, "figures of the script's own", DEADLINE_S)
    assert f'"pid": "{training.pid}"' in said
    assert '"job": "marked"' in said
    assert '"name": "reward"' in said
    assert f'"instance": "localhost:{port[1]}"' in said
