"""A job of a real Ray, submitted and asked as docs/how-to/clusters.md has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import ray_cluster
from tests.harness.cluster_page import NODE_PORT, STEPS_OF_RANKS, is_port_taken, section
from tests.harness.targets import DEADLINE_S, program_path, wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not ray_cluster.is_installed(), reason="scripts/ray installs Ray"),
]
_SECTION = section("Ray")
_BLOCK = _SECTION.partition("```text\n")[2].partition("\n```")[0]
_TOKEN = "t" * 64


@pytest.fixture
def cluster() -> Iterator[ray_cluster.RayCluster]:
    """A cluster whose user has a certificate and a job of two ranks."""
    with tempfile.TemporaryDirectory(prefix="r-", ignore_cleanup_errors=True) as folder:
        made = ray_cluster.RayCluster(Path(folder))
        words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
        words += f" -subj /CN=probing -keyout {folder}/key.pem -out {folder}/cert.pem"
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
        shutil.copy(program_path("on_ray"), made.folder / "train.py")
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.mark.skipif(is_port_taken(), reason=f"another listens on port {NODE_PORT}")
def test_the_lines_of_the_page_find_the_ranks(cluster: ray_cluster.RayCluster) -> None:
    """The job as it is submitted there, then `-t ray:`, and every step that they counted."""
    submit, _, listing = _BLOCK.partition("\nprobing ")
    submit = submit.replace('"..."', f'"{_TOKEN}"').replace("/shared", str(cluster.folder))
    done = cluster.run(submit.replace("job submit", "job submit --no-wait"))
    assert done.returncode == 0, done
    shown = "openssl x509 -noout -fingerprint -sha256 -in cert.pem | cut -d= -f2"
    trust = {
        "PROBING_TOKEN": _TOKEN,
        "PROBING_TLS_FINGERPRINT": cluster.run(shown).stdout.strip(),
        "PROBING_HOME": str(cluster.folder / "elsewhere"),
    }

    def asked() -> dict[int, int]:
        done = cluster.run(f'probing -t ray: query "{STEPS_OF_RANKS}" --json', **trust)
        rows = json.loads(done.stdout) if done.returncode == 0 else []
        return {row["rank"]: row["steps"] for row in rows}

    wait_until(lambda: min(asked().get(rank, 0) for rank in (0, 1)) > 3, "steps", 4 * DEADLINE_S)
    for line in (f"probing {listing}", "probing -t ray: doctor"):
        done = cluster.run(line, **trust)
        assert (done.returncode, done.stderr.count("error")) == (0, 0), (line, done)
        told = "steps looked at" if "doctor" in line else "ray:: 2 of 2 ranks seen"
        assert told in done.stdout, (line, done)
    (cluster.folder / "stop").touch()
    steps = [cluster.folder / f"steps-{rank}" for rank in (0, 1)]
    wait_until(lambda: all(path.exists() and path.read_text() for path in steps), "the end")
    counted = {rank: int(path.read_text()) for rank, path in enumerate(steps)}
    assert asked() == counted
    (cluster.folder / "end").touch()
