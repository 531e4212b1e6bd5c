"""What a step is, in trainings of every kind: each is compared with what the script knows."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from tests.harness.recorded_runs import Run
from tests.harness.targets import start_program

pytestmark = pytest.mark.torch

Runs = Callable[[str], Run]
NEAR = 1e-5
OFTEN = (
    *(
        "zeroed_late",
        "in_backward",
        "by_hand",
        "evaluated",
        "teacher",
        "wrapped",
        "attacked",
        "policy",
    ),
    *("clipped", "forward", "heads", "penalty", "bare", "turns", "cached", "sampled", "labelled"),
    *("windows", "ahead", "scaled_first", "in_parts"),
)
SELDOM = ("twelve", "marked_in_backward", "shared", "functional", "rollouts")
WITH_LOSSES = (*OFTEN, *(pytest.param(way, marks=pytest.mark.nightly) for way in SELDOM))
PAIRS = ("gan", "critics", pytest.param("actor_first", marks=pytest.mark.nightly))
SETTLED = 3
"""After how many steps a pattern is known that could not be foretold."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs each way once."""

    @functools.cache
    def run(way: str) -> Run:
        cwd = tmp_path_factory.mktemp(way)
        target = start_program("step_ways", way, home=cwd / "home", cwd=cwd, PROBING="1")
        try:
            return Run(target)
        finally:
            target.reap()

    return run


@pytest.mark.parametrize(
    "way",
    [
        *(*WITH_LOSSES, *PAIRS, "phases", "layerwise", "temperature", "second_phase"),
        *("by_forward", "marked_by_forward", "tasks", "threads", "one_behind_the_other"),
        "ensemble",
        pytest.param("closure", marks=pytest.mark.nightly),
    ],
)
def test_steps_are_those_of_the_script(way: str, runs: Runs) -> None:
    """As many as it made, with the number of optimizer steps that one has in the end."""
    run = runs(way)
    rows = run.ask("FROM python.steps ORDER BY step")
    ended = [row for row in rows if row["duration"] is not None]
    assert run.problems() == ()
    # Without an optimizer only the next call of the model shows that a step has ended.
    assert [row["step"] for row in ended] == list(
        range(run.ends["steps"] - run.ends.get("open", 0))
    )
    if "per_step" in run.ends:
        settled = ended[run.ends.get("settled", SETTLED) :]
        assert {row["optimizer_steps"] for row in settled} == {run.ends["per_step"]}
    assert all(row["cpu_s"] is not None and row["minor_faults"] is not None for row in ended)


@pytest.mark.parametrize("way", WITH_LOSSES)
def test_losses_are_those_of_the_script(way: str, runs: Runs) -> None:
    """One loss per step is on record as the script has seen it."""
    run = runs(way)
    rows = run.ask("SELECT loss FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    wanted = run.ends["losses"][: len(rows)]
    assert [row["loss"] for row in rows] == pytest.approx(wanted, rel=NEAR)


@pytest.mark.parametrize("way", PAIRS)
def test_losses_of_two_optimizers_are_kept_apart(way: str, runs: Runs) -> None:
    """Each is in the row of its own optimizer, with its rate and its model; no mean is made."""
    run = runs(way)
    (row,) = run.ask(
        "SELECT loss, loss_finite FROM python.steps ORDER BY step DESC LIMIT 1 OFFSET 1"
    )
    assert row == {"loss": None, "loss_finite": True}
    last = run.ask(
        "SELECT last(loss ORDER BY seq) AS loss, last(lr ORDER BY seq) AS lr, model"
        " FROM python.optimizer_steps GROUP BY model ORDER BY lr"
    )
    wanted = run.ends["last"]
    assert [row["loss"] for row in last] == pytest.approx(
        [wanted["opt_gen"], wanted["opt_critic"]], rel=NEAR
    )
    assert [row["lr"] for row in last] == [1e-3, 2e-3]
    assert {row["model"] for row in last} == {"gen", "critic"}


def test_models_of_one_class_are_told_apart(runs: Runs) -> None:
    """Each step has the one that was trained in it."""
    rows = runs("phases").ask(
        "SELECT model, count(*) AS n FROM python.steps WHERE duration IS NOT NULL"
        " GROUP BY model ORDER BY model"
    )
    assert rows == [{"model": "first", "n": 10}, {"model": "second", "n": 10}]


def test_evaluation_is_no_part_of_a_step(runs: Runs) -> None:
    """It has rows of its own, before the steps that it lies before, and their time is not its."""
    run = runs("evaluated")
    rows = run.ask("FROM python.evaluations ORDER BY step")
    assert [row["step"] for row in rows] == run.ends["before"]
    assert [row["calls"] for row in rows] == run.ends["calls"]
    assert [row["samples"] for row in rows] == [20, 20, 20]
    assert all(row["duration"] >= 0.08 for row in rows)  # four pauses of 20 ms, at least
    steps = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["samples"] for row in steps] == [4] * 7
    for row, evaluation in zip([steps[3], steps[6]], rows[1:], strict=True):
        assert row["start_ns"] >= evaluation["start_ns"] + evaluation["duration_ns"] - 1


def test_calls_of_the_parts_of_a_model_evaluate_it(runs: Runs) -> None:
    """All of it is in evaluation mode then; parts of which only some are make what it trains by."""
    run = runs("in_parts")
    (row,) = run.ask("FROM python.evaluations")
    assert (row["step"], row["model"], row["calls"], row["samples"]) == (2, "Halves", 10, 20)
    assert row["duration"] >= 0.08  # four pauses of 20 ms, at least
    steps = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [step["samples"] for step in steps] == [4] * 6
    assert steps[2]["start_ns"] >= row["start_ns"] + row["duration_ns"] - 1


def test_what_looks_like_inference_is_told(runs: Runs) -> None:
    """Without backward passes nothing shows which calls are a step: that is said, and how to."""
    note = runs("by_forward").ends["note"]
    assert "each call of a model is a step, unless the script calls probing.step()" in note
    assert "a step ends where the script calls" in runs("marked_by_forward").ends["note"]


def test_calls_whose_gradients_are_carried_on_are_no_evaluation(runs: Runs) -> None:
    """The first step has to show it; what is called in evaluation mode stays one.

    Where nothing is carried on any more, the next step knows.
    """
    run = runs("cached")
    rows = run.ask("SELECT step, calls FROM python.evaluations ORDER BY step")
    assert [(row["step"], row["calls"]) for row in rows] == [(0, 4), (3, 3), (7, 4), (8, 4)]
    (shown,) = run.ask(
        "SELECT count(*) AS passes, count(loss) AS losses FROM python.micro_batches WHERE step = 2"
    )
    assert shown == {"passes": 5, "losses": 1}


def test_passes_that_train_nothing_are_no_part_of_the_loss(runs: Runs) -> None:
    """Nor are their samples of the step; the first pass and the last have their own losses."""
    run = runs("sampled")
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["first_loss"] for row in rows] == pytest.approx(run.ends["firsts"], rel=NEAR)
    assert [row["last_loss"] for row in rows] == pytest.approx(run.ends["lasts"], rel=NEAR)
    assert {row["samples"] for row in rows} == {run.ends["samples"]}


def test_losses_of_partial_windows_are_undivided(runs: Runs) -> None:
    """They are shares of a whole one, which the full window before has shown."""
    run = runs("windows")
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["first_loss"] for row in rows] == pytest.approx(run.ends["firsts"], rel=NEAR)
    assert [row["last_loss"] for row in rows] == pytest.approx(run.ends["lasts"], rel=NEAR)
    assert [row["samples"] for row in rows] == run.ends["samples"]
    assert [row["micro_batches"] for row in rows] == run.ends["counts"], "no batch, no micro-batch"
    assert all(row["gradients_s"] and row["data_wait_s"] for row in rows)
    (told,) = run.ask("SELECT count(*) AS n FROM python.micro_batches")
    assert told["n"] == sum(run.ends["counts"])
    rows = run.ask("SELECT loss FROM python.optimizer_steps ORDER BY seq")
    assert [row["loss"] for row in rows] == pytest.approx(run.ends["losses"], rel=NEAR)


def test_passes_made_ahead_are_of_micro_batches_of_their_own(runs: Runs) -> None:
    """A failed call, and what is evaluated amid a step, are of none."""
    run = runs("ahead")
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["micro_batches"] for row in rows] == [4] * 8
    assert [row["samples"] for row in rows] == [16] * 7 + [32]
    rows = run.ask("FROM python.micro_batches WHERE step < 8 ORDER BY step, micro_batch")
    assert [row["samples"] for row in rows] == [4] * 28 + [8] * 4
    assert [row["elements"] for row in rows] == [16] * 28 + [32] * 4
    rows = run.ask("SELECT step, calls, samples FROM python.evaluations ORDER BY step")
    assert [tuple(row.values()) for row in rows] == [(0, 2, 100), (5, 2, 100), (6, 2, 8)]


def test_pseudo_labels_behind_a_validation_are_part_of_the_step(runs: Runs) -> None:
    """Only what was called in evaluation mode is evaluation."""
    rows = runs("labelled").ask("SELECT step, calls FROM python.evaluations ORDER BY step")
    assert [(row["step"], row["calls"]) for row in rows] == [(2, 1), (4, 1)]


@pytest.mark.parametrize("way", ["teacher", "policy"])
def test_targets_are_part_of_the_step(way: str, runs: Runs) -> None:
    """They are made without gradients before each step, by a teacher or by the model itself."""
    assert runs(way).ask("FROM python.evaluations") == []


def test_models_called_in_turn_are_evaluated(runs: Runs) -> None:
    """A policy that acts and a critic that values it are no part of the step behind."""
    run = runs("turns")
    rows = run.ask("SELECT samples FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["samples"] for row in rows] == run.ends["samples"]
    rows = run.ask("SELECT step, calls, samples FROM python.evaluations ORDER BY step")
    assert [tuple(row.values()) for row in rows] == [(0, 12, 12), (2, 12, 12), (4, 12, 12)]


def test_an_optimizer_in_a_backward_pass_ends_no_step_within_it(runs: Runs) -> None:
    """The whole pass is of one step, and so is its time."""
    run = runs("in_backward")
    rows = run.ask("SELECT backward_s, optimizer_s FROM python.steps WHERE duration IS NOT NULL")
    assert all(row["backward_s"] > 4 * 0.005 and row["optimizer_s"] > 0 for row in rows)
    passes = run.ask(
        "SELECT DISTINCT step FROM python.torch_trace WHERE stage = 'backward'"
        " AND module = 'Sequential' ORDER BY step"
    )
    assert [row["step"] for row in passes] == list(range(6))


@pytest.mark.nightly
def test_the_first_loss_is_what_a_closure_gives_back(runs: Runs) -> None:
    """LBFGS computes several per step; the script sees the first."""
    run = runs("closure")
    rows = run.ask("SELECT first_loss FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["first_loss"] for row in rows] == pytest.approx(run.ends["firsts"], rel=NEAR)


def test_norms_are_told_before_and_after_clipping(runs: Runs) -> None:
    """As the script has seen both; a gradient scaler that is switched off has done nothing."""
    run = runs("clipped")
    rows = run.ask(
        "SELECT grad_norm, clipped_norm, skipped, amp_scale FROM python.steps"
        " WHERE duration IS NOT NULL ORDER BY step"
    )
    before, after = run.ends["norms"]
    assert [row["grad_norm"] for row in rows] == pytest.approx(before, rel=NEAR)
    assert [row["clipped_norm"] for row in rows] == pytest.approx(after, rel=NEAR)
    assert {(row["skipped"], row["amp_scale"]) for row in rows} == {(None, None)}
    assert after[0] < before[0]


def test_steps_that_a_scaler_leaves_out_are_told_for_good(runs: Runs) -> None:
    """Each, also where no optimizer is counted; a scale of zero makes no loss."""
    run = runs("overflowing")
    rows = run.ask(
        "SELECT loss, amp_scale, skipped FROM python.steps WHERE duration IS NOT NULL ORDER BY step"
    )
    assert sum(row["skipped"] for row in rows) + 1 >= len(run.ends["losses"])
    assert {row["skipped"] for row in rows[1:]} == {1}
    assert rows[-1]["amp_scale"] == 0
    assert all((row["loss"] is None) == (row["amp_scale"] == 0) for row in rows)


def test_losses_that_were_scaled_first_are_told_without_the_scale(runs: Runs) -> None:
    """Each part of a step's, too."""
    run = runs("scaled_first")
    parts = run.ask(
        "SELECT sum(loss) AS loss FROM python.micro_batches GROUP BY step ORDER BY step"
    )
    assert [row["loss"] for row in parts[:8]] == pytest.approx(run.ends["losses"], rel=NEAR)
    scales = run.ask("SELECT DISTINCT amp_scale FROM python.steps WHERE duration IS NOT NULL")
    assert scales == [{"amp_scale": 256.0}]


def test_a_loss_that_was_scaled_in_parts_is_not_known(runs: Runs) -> None:
    """It is no number, neither a wrong one nor one that is not finite."""
    rows = runs("scaled_in_parts").ask(
        "SELECT loss, first_loss, loss_finite, amp_scale FROM python.steps"
        " WHERE duration IS NOT NULL"
    )
    odd = {"loss": None, "first_loss": None, "loss_finite": None, "amp_scale": 256.0}
    assert rows == [odd] * 4


def test_a_step_ends_though_a_scaler_leaves_one_of_its_optimizers_out(runs: Runs) -> None:
    """With its own loss, whichever it was; only where all are left out the step goes on."""
    run = runs("left_out")
    rows = run.ask("FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    assert [row["loss"] for row in rows] == pytest.approx(run.ends["losses"], rel=NEAR)
    assert [row["skipped"] for row in rows] == run.ends["skipped"]
    assert [2 - row["optimizer_steps"] for row in rows[1:]] == run.ends["skipped"][1:]


def test_layers_that_a_script_calls_itself_are_of_their_list(runs: Runs) -> None:
    """A list of modules cannot be called: what is called of it goes by its name there."""
    run = runs("layerwise")
    assert run.names("forward") == {"0", "1", "2"}
    rows = run.ask("SELECT DISTINCT model FROM python.steps WHERE duration IS NOT NULL")
    assert rows == [{"model": "layers"}]


def test_modules_keep_their_names_where_forward_is_called(runs: Runs) -> None:
    """They are those of the model that was called past the call which is recorded."""
    run = runs("forward")
    assert run.names("forward") == {"first", "rest.0", "rest.1"}
    rows = run.ask("SELECT DISTINCT root, model FROM python.torch_trace WHERE stage = 'forward'")
    assert rows == [{"root": "Direct", "model": "model"}]
    rows = run.ask("SELECT DISTINCT model FROM python.steps WHERE duration IS NOT NULL")
    assert rows == [{"model": "model"}]


def test_tasks_of_asyncio_keep_their_losses_apart(runs: Runs) -> None:
    """Each step is of one model and has its loss, in whichever order they go on; that is told."""
    run = runs("tasks")
    rows = run.ask("SELECT model, loss FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    for place, wanted in enumerate((run.ends["first"], run.ends["second"])):
        (model,) = {row["model"] for row in rows if row["loss"] == pytest.approx(wanted[0], NEAR)}
        found = [row["loss"] for row in rows if row["model"] == model]
        assert found == pytest.approx(wanted, rel=NEAR), place


@pytest.mark.parametrize("way", ["threads", "at_once"])
def test_of_two_threads_that_train_one_is_on_record(way: str, runs: Runs) -> None:
    """Wholly: each of its steps with its loss and rate, and nothing of the other's."""
    run = runs(way)
    rows = run.ask("SELECT loss, lr FROM python.steps WHERE duration IS NOT NULL ORDER BY step")
    lrs = {row["lr"] for row in rows}
    assert lrs in ({1e-3}, {2e-3})
    wanted = run.ends["first" if lrs == {1e-3} else "second"]
    assert [row["loss"] for row in rows] == pytest.approx(wanted, rel=NEAR)
    assert run.ask("SELECT count(*) AS n FROM python.optimizer_steps") == [{"n": 200}]


def test_models_trained_side_by_side_keep_their_losses(runs: Runs) -> None:
    """Passes one behind the other are added up only where an optimizer uses them together."""
    run = runs("ensemble")
    rows = run.ask("SELECT model, loss FROM python.optimizer_steps WHERE step = 4 ORDER BY seq")
    assert [row["model"] for row in rows] == ["first", "second", "third"]
    assert [row["loss"] for row in rows] == pytest.approx(run.ends["last"], rel=NEAR)
    rows = run.ask("SELECT loss FROM python.steps UNION ALL SELECT loss FROM python.micro_batches")
    assert {row["loss"] for row in rows} == {None}


def test_heads_are_models_of_the_step_that_trains_them(runs: Runs) -> None:
    """Also those that are called between others, and those that come later."""
    rows = runs("heads").ask("SELECT model FROM python.steps WHERE duration IS NOT NULL")
    assert [row["model"] for row in rows] == ["enc, first, second"] * 4 + ["enc, first, late"] * 2


def test_a_whole_backward_pass_is_of_all_models_that_it_goes_through(runs: Runs) -> None:
    """Not of the one called last; from the second on, since several are known by then."""
    sql = (
        "SELECT model FROM python.torch_trace WHERE stage = 'backward' AND depth = 0 AND step > 0"
        " ORDER BY start_ns"
    )
    rows = [row["model"] for row in runs("heads").ask(sql)]
    assert rows == ["enc, first, second"] * 3 + ["enc, first, late"] * 2
    rows = [row["model"] for row in runs("gan").ask(sql)]
    assert rows == ["critic", "gen, critic"] * 9


def test_a_micro_batch_whose_backward_pass_failed_says_so(runs: Runs) -> None:
    """Also where the script catches the error and goes on; the others did not fail."""
    run = runs("retried")
    rows = run.ask("SELECT step, failed FROM python.micro_batches ORDER BY seq")
    assert [row["step"] for row in rows if row["failed"]] == [3]
    assert {row["failed"] for row in rows} == {True, False}
    assert len(run.ask("FROM python.steps WHERE duration IS NOT NULL")) == 6


def test_gradients_within_a_loss_end_no_micro_batch(runs: Runs) -> None:
    """Nor do those that nobody keeps: a step by one loss has one."""
    rows = runs("penalty").ask("SELECT micro_batches AS n FROM python.steps WHERE loss IS NOT NULL")
    assert [row["n"] for row in rows] == [1] * 6
