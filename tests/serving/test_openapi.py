"""The agent keeps to its own description, whatever is asked that the description allows or not.

Needs schemathesis, which newer Pythons alone can have; so this runs on the first Python only.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import Reached
from tests.harness.targets import clean_env, start_program

WAITING = ("labels", "act", "repeat", "live")
"""Routes that wait for a training, which there is none of here."""


_CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]
"""
"""A query may be ended after the limit of a second that was chosen for it."""


@pytest.mark.slow
@pytest.mark.fault("N2")
@pytest.mark.parametrize(
    ("examples", "left_out", "most_s"),
    [(2, WAITING, 300), pytest.param(100, (), 3600, marks=pytest.mark.nightly)],
    ids=["few", "many"],
)
def test_the_description_is_kept_to(
    tmp_path: Path, fault: Reached, examples: int, left_out: tuple[str, ...], most_s: int
) -> None:
    """All checks of schemathesis but one: what a schema allows may still be no SQL or no Python.

    The route by which the agent leaves is not asked.
    """
    settings = {"PROBING_LISTEN": "127.0.0.1:0", "PROBING_MAX_REQUESTS_PER_S": "100000"}
    target = start_program("idle", home=tmp_path / "home", cwd=tmp_path, PROBING="all", **settings)
    try:
        target.wait_for_agent()
        card = target.folder.read_card()
        assert card is not None
        token = target.folder.token.read_text()
        target.wait_for_output("ready")
        before = target.output
        command = [sys.executable, "-m", "schemathesis.cli", "run"]
        command += [f"http://{card.listen}/v1/openapi.json", "-H", f"Authorization: Bearer {token}"]
        command += ["--max-examples", str(examples), "--seed", "7", "--continue-on-failure"]
        command += ["--phases", "coverage,fuzzing", "--request-timeout", "60", "--no-color"]
        command += ["--exclude-checks", "positive_data_acceptance"]
        for name in ("detach", *left_out):
            command += ["--exclude-operation-id", name]
        (tmp_path / "schemathesis.toml").write_text(_CONFIG)
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**clean_env(tmp_path / "home"), "SCHEMATHESIS_HOOKS": "tests.serving.described"},
            capture_output=True,
            text=True,
            timeout=most_s,
        )
        print(done.stdout[-20_000:], done.stderr[-2000:])
        fault.equals("schemathesis: exit code", 0, done.returncode)
        fault.equals("schemathesis: bytes printed", 0, len(target.output) - len(before))
    finally:
        target.reap()
