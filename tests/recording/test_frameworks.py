"""The record of trainings that a framework runs, compared with what the framework reports.

transformers, accelerate and lightning stand in tests/frameworks.txt; tests/run.sh installs them.
"""

from __future__ import annotations

import pytest

from tests.harness.recorded_runs import Runs, make_runs

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = "frameworks"
WAYS = (
    "trainer",
    "lit",
    *(
        pytest.param(way, marks=pytest.mark.nightly)
        for way in ("accelerated", "trainer_whole", "accelerated_bf16", "lit_whole")
    ),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs each way once without the agent and once with it."""
    return make_runs(lambda: tmp_path_factory.mktemp("frameworks"))


@pytest.mark.parametrize("way", WAYS)
def test_training_is_the_same(way: str, runs: Runs) -> None:
    """What the framework reports, parameters to the last bit, output and exit code."""
    runs(PROGRAM, way).assert_same()


@pytest.mark.parametrize("way", WAYS)
def test_each_step_is_on_record(way: str, runs: Runs) -> None:
    """One row per optimizer step, with loss, rate, norm and sizes as the framework reports them."""
    runs(PROGRAM, way).assert_recorded()


@pytest.mark.parametrize("way", WAYS)
def test_modules_go_by_their_own_names(way: str, runs: Runs) -> None:
    """Every module with parameters has rows in both directions, and none goes by another name."""
    (run,) = runs(PROGRAM, way).seen
    parts, used = set(run.ends["parts"]), set(run.ends["used"])
    for stage in ("forward", "backward"):
        names = run.names(stage)
        assert run.ends["root"] in names
        assert used <= names <= {run.ends["root"], *parts}
