"""The record of what torch itself offers to train with, compared with runs without the agent."""

from __future__ import annotations

import sys

import pytest

from tests import faults
from tests.harness.recorded_runs import Runs, make_runs

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PROGRAM = "training_ways"
MODULES = {
    "Net",
    "embed",
    "head",
    *(f"blocks.{n}{part}" for n in range(2) for part in ("", ".norm", ".up", ".down")),
}
EAGER = (
    "accumulated",
    "autocast",
    "scaled",
    "checkpoint_reentrant",
    "checkpoint_saved",
    "checkpoint_wrapped",
)
COMPILED = {
    "compiled": {"OptimizedModule", "Net"},
    "compiled_to_aten": {"OptimizedModule", "Net"},
    "compiled_broken": {"OptimizedModule", "BrokenNet", "embed", "blocks.0", "blocks.1", "head"},
    "compiled_in_place": {"Net", "embed", "blocks.0", "blocks.1", "head"},
}
_needs_headers = pytest.mark.skipif(
    " " in sys.prefix,
    reason="torch's compiler does not find its own headers below a folder with a space in its name",
)
COMPILED_WAYS = (
    pytest.param("compiled_to_aten", marks=_needs_headers),
    pytest.param("compiled", marks=[_needs_headers, pytest.mark.nightly]),
    pytest.param("compiled_broken", marks=[_needs_headers, pytest.mark.nightly]),
    pytest.param("compiled_in_place", marks=[_needs_headers, pytest.mark.nightly]),
)
CHECKPOINTED = tuple(way for way in EAGER if way.startswith("checkpoint"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs each way once without the agent and once with it."""
    return make_runs(lambda: tmp_path_factory.mktemp("ways"))


@pytest.mark.fault("T7")
@pytest.mark.parametrize("way", [*EAGER, *COMPILED_WAYS])
def test_training_is_the_same(way: str, runs: Runs, fault: faults.Reached) -> None:
    """Losses, norms and parameters to the last bit, output, exit code, graphs and breaks."""
    pair = runs(PROGRAM, way)
    pair.assert_same()
    (bare,), (seen,) = pair.bare, pair.seen
    fault.equals(f"{way}: digest of the parameters", bare.ends["digest"], seen.ends["digest"])
    if "breaks" in bare.ends:
        fault.equals(f"{way}: graph breaks", bare.ends["breaks"], seen.ends["breaks"])


@pytest.mark.parametrize("way", [*EAGER, *COMPILED_WAYS])
def test_each_step_is_on_record(way: str, runs: Runs) -> None:
    """Its loss, rate, norm, samples, tokens and micro-batches are those of the script."""
    runs(PROGRAM, way).assert_recorded()


@pytest.mark.parametrize("way", EAGER)
def test_modules_go_by_their_own_names(way: str, runs: Runs) -> None:
    """Forward and backward, whatever wrapper is around them."""
    (run,) = runs(PROGRAM, way).seen
    assert run.names("forward") == MODULES
    assert run.names("backward") == MODULES


@pytest.mark.parametrize("way", CHECKPOINTED)
def test_recomputation_is_marked(way: str, runs: Runs) -> None:
    """Each block runs once more in each backward pass, in rows that say so."""
    (run,) = runs(PROGRAM, way).seen
    rows = run.ask(
        "SELECT recomputed, count(*) AS n FROM python.torch_trace WHERE stage = 'forward'"
        " AND class = 'Block' GROUP BY ALL ORDER BY recomputed"
    )
    assert rows == [{"recomputed": False, "n": 12}, {"recomputed": True, "n": 12}]


@pytest.mark.parametrize("way", COMPILED_WAYS)
def test_what_lies_around_compiled_regions_is_seen(way: str, runs: Runs) -> None:
    """Modules that are called from outside of any graph have rows, those in a graph have none."""
    (run,) = runs(PROGRAM, way).seen
    # Torch itself calls the module of a graph once, when that runs for the first time.
    assert run.names("forward") - {"GraphModule"} == COMPILED[way]
    assert run.names("backward") == COMPILED[way]


@_needs_headers
def test_compiling_is_counted(runs: Runs) -> None:
    """What the comparison of graphs and breaks rests on is there: something was compiled."""
    (run,) = runs(PROGRAM, "compiled_to_aten").seen
    assert run.ends["graphs"] > 0
    assert run.ends["frames"]["total"] > 0


@pytest.mark.fault("T7")
def test_ranks_of_data_parallel_training(runs: Runs, fault: faults.Reached) -> None:
    """Two ranks, two micro-batches: each has its own record, by the names of the model inside."""
    pair = runs(PROGRAM, "ddp", 2)
    pair.assert_same()
    for rank, (bare, seen) in enumerate(zip(pair.bare, pair.seen, strict=True)):
        case = f"data parallel, rank {rank}: digest of the parameters"
        fault.equals(case, bare.ends["digest"], seen.ends["digest"])
    pair.assert_recorded()
    for run in pair.seen:
        assert run.names("forward") == MODULES | {"DistributedDataParallel"}
        assert run.names("backward") == MODULES | {"DistributedDataParallel"}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("ddp_compiled_to_aten", marks=[pytest.mark.nightly, _needs_headers]),
        pytest.param("ddp_compiled", marks=[pytest.mark.nightly, _needs_headers]),
    ],
)
def test_ranks_of_a_compiled_data_parallel_model(way: str, runs: Runs) -> None:
    """It is compiled as without the agent, and gives the same to the last bit."""
    pair = runs(PROGRAM, way, 2)
    pair.assert_same()
    pair.assert_recorded()


def test_ranks_of_sharded_training(runs: Runs) -> None:
    """Classes are those the model was made from; the norm is that of all ranks, as clipped by."""
    pair = runs(PROGRAM, "fsdp2", 2)
    pair.assert_same()
    pair.assert_recorded()
    for run in pair.seen:
        assert run.names("forward") == MODULES
        assert run.names("backward") == MODULES
        rows = run.ask("SELECT DISTINCT class, root FROM python.torch_trace WHERE depth = 1"
                       " AND module LIKE 'blocks%'")  # fmt: skip
        assert rows == [{"class": "Block", "root": "Net"}]


@pytest.mark.nightly
def test_ranks_of_flat_shards(runs: Runs) -> None:
    """FSDP1's own clipping tells the norm of all ranks; of one rank's shards none is taken."""
    pair = runs(PROGRAM, "fsdp1", 2)
    pair.assert_same()
    pair.assert_recorded()
    for run in runs(PROGRAM, "fsdp1_unclipped", 2).seen:
        norms = run.ask("SELECT count(*) AS steps, count(grad_norm) AS told FROM python.steps")
        assert norms[0]["steps"] >= 6
        assert norms[0]["told"] == 0
