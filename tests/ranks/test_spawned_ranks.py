"""Ranks that no launcher's variable names are known by torch's process group."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.harness.targets import Target, wait_until

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.nightly]


def test_a_job_of_spawned_ranks_is_one_job(program: Callable[..., Target]) -> None:
    """Their cards say who they are once they train; that their launcher waits is no finding."""
    target = program("spawned_ranks", PROBING="1")
    target.wait_for_output("ready")

    def cards() -> list[tuple[int | None, int | None, str | None]]:
        found = [json.loads(one.read_text()) for one in target.home.glob("*/card.json")]
        return sorted(
            [
                (card["rank"], card["world_size"], card["job"])
                for card in found
                if card["rank"] is not None
            ]
        )

    seen = wait_until(lambda: len(found := cards()) == 2 and found, "both cards say their rank")
    assert [(rank, size) for rank, size, _ in seen] == [(0, 2), (1, 2)]
    assert {job for _, _, job in seen} == {seen[0][2]}
    assert str(seen[0][2]).startswith("localhost:")
    done = target.run("-t", "all", "doctor", "--format", "json", "--timeout", "60")
    answer = json.loads(done.stdout)
    assert "waits" not in {finding["rule"] for finding in answer["findings"]}, answer["findings"]
    assert "ranks 0-1" in answer["about"]
