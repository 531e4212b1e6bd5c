"""Predictions of memory, against what steps of that shape really take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from probing.cli import main
from probing.cli.commands.fit import parse_size
from probing.errors import FitRefused, UsageError
from probing.messages.about.fit import (
    FitAnswer,
    FitPeak,
    FitShape,
    accumulation_pairs,
    find_largest,
    needed_bytes,
)
from tests.harness.targets import Target, clean_env, program_path, start_program, wait_until

SLOPE, FIXED, BASE = 1000, 500, 20_000


def answer(batch: int, *, room: int | None = None) -> FitAnswer:
    """A training that takes so much for each sample, as two pieces of a line."""
    size = max(BASE + SLOPE * batch, 2 * SLOPE * batch)
    peak = FitPeak(shape=FitShape(batch=batch), bytes=size, phase="forward", parts=())
    now = FitPeak(shape=FitShape(batch=8), bytes=0, phase="forward", parts=())
    return FitAnswer(
        model="M", device="cpu", step=1, now=now, asked=peak, micro_batches=4, blocks=None,
        block_class=None, config_field=None, loss="", measured_bytes=None, fixed_bytes=FIXED,
        room_bytes=room, room=None, held_s=0.0,
    )  # fmt: skip


@pytest.mark.anypython
@pytest.mark.parametrize("memory", [24_000, 30_000, 41_500, 95_000, 4_000_000])
def test_the_largest_batch_is_the_last_that_fits(memory: int) -> None:
    """The search ends with the batch that fits while the next does not, in few simulations."""
    found = find_largest(lambda size: answer(size or 8), memory=memory, margin=0.1)
    best = found.answer.asked.shape.batch
    assert needed_bytes(answer(best)) <= int(memory * 0.9) < needed_bytes(answer(best + 1))
    assert found.next_batch == best + 1
    assert len(found.tried) <= 8


@pytest.mark.anypython
def test_what_cannot_fit_is_refused() -> None:
    """Neither a limit below one sample nor one that nobody knows gives a batch."""
    with pytest.raises(FitRefused, match="not even a batch of 1"):
        find_largest(lambda size: answer(size or 8), memory=BASE, margin=0.0)
    with pytest.raises(FitRefused, match="is not known"):
        find_largest(lambda size: answer(size or 8), memory=None, margin=0.0)


@pytest.mark.anypython
def test_accumulation_keeps_the_samples_of_a_step() -> None:
    """Every pair has the same product, and no micro-batch is above the largest."""
    assert accumulation_pairs(32, 20) == ((16, 2), (8, 4), (4, 8), (2, 16))
    assert accumulation_pairs(32, 64)[0] == (32, 1)


@pytest.mark.anypython
def test_sizes_are_read_as_people_write_them() -> None:
    """Binary and decimal units are told apart; what is no size is refused."""
    sizes = {"80GiB": 80 << 30, "80GB": 80 * 10**9, "1.5G": 3 << 29, "512m": 512 << 20, "77": 77}
    assert {text: parse_size(text) for text in sizes} == sizes
    with pytest.raises(UsageError, match="not a size"):
        parse_size("much")


@pytest.mark.anypython
@pytest.mark.parametrize("size", ["0", "0.5B"])
def test_nothing_fits_into_no_memory(size: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It is refused before the training is held."""
    words = [str(os.getpid()), "fit", "--batch", "2", "--memory", size]
    assert main.run(words) == UsageError.exit_code
    assert f"'{size}' is too small: 1 B is the least" in capfd.readouterr().err


class Trained:
    """Programs of ``fitted.py``, one at a time, so that they do not take each other's time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._target: Target | None = None
        self._way = ""

    def __call__(self, way: str) -> Target:
        """The one that trains in this way."""
        if self._target is None or self._way != way:
            self.reap()
            cwd = self._folder / f"{way}-{len(list(self._folder.iterdir()))}"
            cwd.mkdir()
            self._target = start_program("fitted", way, home=self._folder / "home", cwd=cwd)
            self._target.wait_for_output("ready")
            self._way = way
        return self._target

    def reap(self) -> None:
        """End it."""
        if self._target is not None:
            self._target.reap()
            self._target = None


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """Trainings for the predictions of this file."""
    programs = Trained(tmp_path_factory.mktemp("fit"))
    yield programs
    programs.reap()


def fit(target: Target, *options: str) -> Any:
    """What the command says, as JSON."""
    done = target.run(str(target.pid), "fit", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run_alone(folder: Path, *args: object) -> list[str]:
    """What ``fitted.py`` prints without the agent."""
    argv = [sys.executable, str(program_path("fitted")), *map(str, args)]
    env = clean_env(folder)
    done = subprocess.run(argv, env=env, check=True, capture_output=True, text=True, timeout=240)
    return done.stdout.split()


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "shape"),
    [
        ("gpt", (12, 128, 3)),
        ("cnn", (48, 0, 0)),
        ("tied", (16, 128, 6)),
        ("regression", (4096, 0, 0)),
    ],
)
def test_the_peak_is_that_of_a_real_run(
    trained: Trained, way: str, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    """Another batch, length and depth take, within 5 %, what the CPU's allocator hands out."""
    sizes = zip(("--batch", "--seq", "--layers"), shape, strict=True)
    options = [str(part) for pair in sizes if pair[1] for part in pair]
    asked = fit(trained(way), *options)["asked"]
    real = int(run_alone(tmp_path, way, "measure", *shape)[-1])
    assert asked["bytes"] == pytest.approx(real, rel=0.05)
    assert sum(part["bytes"] for part in asked["parts"]) == asked["bytes"]


@pytest.mark.torch
@pytest.mark.slow
def test_what_variables_keep_counts_and_the_prediction_is_checked(trained: Trained) -> None:
    """Data and the last result are in it, the peak is that of a recorded step to 1 %."""
    target = trained("keeping")
    found = fit(target, "--batch", "512")
    now, asked = found["now"], found["asked"]
    assert now["bytes"] == pytest.approx(found["measured_bytes"], rel=0.01)
    data, result = 8192 * 64 * 4, 256 * 4096 * 4
    kept = [{p["category"]: p["bytes"] for p in peak["parts"]}["kept by variables"]
            for peak in (now, asked)]  # fmt: skip
    assert kept[0] == pytest.approx(data + result, rel=0.01)
    assert kept[1] == pytest.approx(data + 2 * result, rel=0.01)
    shown = target.run(str(target.pid), "fit", "--no-check")
    assert "prediction error: not checked" in shown.stdout, shown.stderr


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("way", ["vae", "by_hand", "around", "beside", "in_backward"])
def test_a_step_is_predicted_to_take_what_it_takes(trained: Trained, way: str) -> None:
    """What a loss compares with the model's own input is there once; so are hand-made gradients.

    So is the state of an optimizer that another one steps. A gradient whose optimizer steps in the
    backward pass and lets go of it is not there with those that come later. Of several optimizers
    none ends the step but the last.
    """
    found = fit(trained(way))
    assert found["now"]["bytes"] == pytest.approx(found["measured_bytes"], rel=0.001)
    is_said = "what the update takes is not predicted" in " ".join(found["notes"])
    assert is_said == (way == "by_hand")


@pytest.mark.torch
@pytest.mark.slow
def test_what_a_step_was_measured_to_take_tells_of_another(
    trained: Trained, tmp_path: Path
) -> None:
    """A recorded step, scaled, is within 10 % of a real one of eight times the batch."""
    found = fit(trained("regression"), "--from-measured", "--batch", "4096")
    real = int(run_alone(tmp_path, "regression", "measure", 4096, 0, 0)[-1])
    assert found["asked"]["bytes"] == pytest.approx(real, rel=0.10)
    assert (found["now"]["shape"]["batch"], found["shapes"], found["miss"]) == (512, 1, None)
    assert found["basis"] is not None
    assert found["room_bytes"] > found["fixed_bytes"] > 0


@pytest.mark.torch
@pytest.mark.slow
def test_the_training_goes_on_as_if_nothing_had_been_asked(
    trained: Trained, tmp_path: Path
) -> None:
    """Losses with dropout and recomputation are the same bit for bit, and nothing is recorded."""
    target = trained("tied")
    fit(target, "--batch", "3")
    so_far = len(losses_of(target))
    wait_until(lambda: len(losses_of(target)) >= so_far + 5, "five more steps")
    losses = losses_of(target)[: so_far + 5]
    alone = [w for w in run_alone(tmp_path, "tied", "steps", len(losses)) if w != "ready"]
    assert losses == alone
    rows = "SELECT count(DISTINCT thread_id) AS n FROM python.torch_trace WHERE stage = 'forward'"
    counted = target.run(str(target.pid), "query", "--format", "json", rows)
    assert json.loads(counted.stdout)[0]["n"] == 1


def losses_of(target: Target) -> list[str]:
    """The losses that it has printed, whole lines only."""
    lines = target.output.rpartition("\n")[0].split()
    return [line for line in lines if line != "ready"]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "options", "reason", "way_out"),
    [
        ("gpt", ("--seq", "129"), "has 128 rows and would need 129", "can be given is 128"),
        ("cnn", ("--seq", "9"), "is not given tokens", "two dimensions"),
        ("cnn", ("--layers", "9"), "no ModuleList or Sequential", "work without"),
        ("asking", ("--batch", "9"), "reads a number out of a tensor", "summary"),
        ("bare", ("--batch", "9"), "no module that the script calls", "what it takes now"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_its_reason(
    trained: Trained, way: str, options: tuple[str, ...], reason: str, way_out: str
) -> None:
    """A model that cannot be given such a shape gives a sentence and a way out, and trains on."""
    target = trained(way)
    done = target.run(str(target.pid), "fit", *options)
    assert done.returncode == 4
    assert reason in done.stderr
    assert way_out in done.stderr
    steps = len(losses_of(target))
    wait_until(lambda: len(losses_of(target)) > steps, "a further step")


@pytest.mark.torch
@pytest.mark.slow
def test_a_model_of_a_million_blocks_is_given_up_in_time(trained: Trained) -> None:
    """A number that is far too large costs the training no more than the time that was given."""
    target = trained("tied")
    fit(target)  # loads what torch runs a step without data by, which takes time of its own
    done = target.run(str(target.pid), "--timeout", "5", "fit", "--layers", "1000000")
    assert done.returncode == 5, done.stderr
    assert "did not end in time" in done.stderr
    names = "[t.name for t in threading.enumerate()]"

    def at_work() -> str:
        done = target.run(str(target.pid), "eval", f"import threading; {names}")
        assert "probing-" in done.stdout, done.stderr
        return done.stdout

    wait_until(lambda: "probing-fit" not in at_work(), "the end of its thread")
    steps = len(losses_of(target))
    wait_until(lambda: len(losses_of(target)) > steps, "a further step")


@pytest.mark.torch
@pytest.mark.slow
def test_the_largest_batch_is_found_in_a_live_training(trained: Trained) -> None:
    """What is found fits what was given, one more sample does not, and the samples are kept."""
    target = trained("tied")
    fit(target)  # loads what torch runs a step without data by, which stays in memory
    now = fit(target)
    limit = now["now"]["bytes"] + now["fixed_bytes"] + (48 << 20)
    found = fit(target, "--max", "--margin", "0", "--memory", str(limit))
    best = found["answer"]["asked"]["shape"]["batch"]
    above = fit(target, "--batch", str(best + 1))
    assert best > 4
    assert found["next_batch"] == best + 1
    assert above["asked"]["bytes"] > found["answer"]["asked"]["bytes"]
    assert found["pairs"][0] == [8, 1]  # two micro-batches of four


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own imports
@pytest.mark.parametrize("way", ["mse", "bce", "shifted", "with_loss", "itself"])
def test_the_loss_is_made_as_the_script_makes_it(way: str) -> None:
    """A step on a copy takes what MemTracker counts in the real one, within 2 %."""
    torch = pytest.importorskip("torch")
    from torch.distributed._tools.mem_tracker import MemTracker

    from probing.agent.sources.fit.fake_copy import FakeCopy
    from probing.agent.sources.fit.fake_step import Step, fake_mode, run_step
    from probing.agent.sources.fit.loss_graph import address_of, read_loss

    model, make, given = _losing(torch, way)
    x = given[0]
    result = model(x)
    plan = read_loss(make(result), [result.grad_fn], [address_of(x) or 0])
    assert (plan.unknown, plan.branches) == (None, False)
    mode, labels = fake_mode(), list[object]()
    copies = FakeCopy(mode)
    copy = copies.any(x)

    def make_again(out: Any) -> Any:
        return plan.make([out], torch, labels, [copy])

    step = Step(
        copies.module(model), [], ((copy,), {}), make_again,
        kept_in_forward=False, kept_in_backward=False, keeps_result=False, contexts=[], kept={},
    )  # fmt: skip
    predicted = run_step(step, mode, "cpu", lambda: None).bytes
    del result
    tracker = MemTracker()
    tracker.track_external(model, *given)
    with tracker:
        make(model(x)).backward()
    real = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
    assert predicted == pytest.approx(real, rel=0.02)


def _losing(torch: Any, way: str) -> tuple[Any, Any, list[Any]]:
    """A model, how its loss is made, and what it is given, with labels."""
    functional = torch.nn.functional
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        torch.nn.GELU(),
        torch.nn.Linear(256, 64 if way == "itself" else 512),
    )
    x = torch.randn(32, 16, 64)
    labels, numbers = torch.randint(512, (32, 16)), torch.rand(32, 16, 512)

    def shifted(out: Any) -> Any:
        return functional.cross_entropy(
            out[:, :-1].float().reshape(-1, 512), labels[:, 1:].flatten()
        )

    makers = {
        "mse": lambda out: functional.mse_loss(out, numbers),
        "bce": lambda out: functional.binary_cross_entropy_with_logits(out, numbers) / 2,
        "shifted": shifted,
        "with_loss": lambda out: out.mean(),
        "itself": lambda out: functional.mse_loss(out, x),
    }
    targets = {
        "mse": [numbers],
        "bce": [numbers],
        "shifted": [labels],
        "with_loss": [],
        "itself": [],
    }
    return model, makers[way], [x, *targets[way]]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's own imports
def test_what_runs_elsewhere_is_refused_by_name() -> None:
    """Compiled, parallel and replaced code is named, since its memory is not the copy's."""
    torch = pytest.importorskip("torch")
    from probing.agent.sources.fit.fake_copy import FakeCopy
    from probing.agent.sources.fit.fake_step import fake_mode

    layer = torch.nn.Linear(2, 2)
    replaced = torch.nn.Linear(2, 2)
    replaced.forward = lambda x: x
    cases = {
        "compiled by torch.compile": torch.nn.Sequential(torch.compile(layer)),
        "shares its work": torch.nn.Sequential(torch.nn.DataParallel(layer)),
        "forward of 0 has been replaced": torch.nn.Sequential(replaced),
    }
    for reason, model in cases.items():
        with pytest.raises(FitRefused, match=reason):
            FakeCopy(fake_mode()).module(model)


@pytest.mark.torch
def test_an_object_behind_a_weak_proxy_is_refused() -> None:
    """It could be changed through the copy; Lightning's modules have one while they train."""
    torch: Any = pytest.importorskip("torch")
    from probing.agent.sources.fit.fake_copy import FakeCopy
    from probing.agent.sources.fit.fake_step import fake_mode

    model = torch.nn.Linear(2, 2)
    model.trainer = SimpleNamespace(part=weakref.proxy(fit))
    with pytest.raises(FitRefused, match="weak proxy"):
        FakeCopy(fake_mode()).module(model)


@pytest.mark.torch
def test_a_copy_shares_nothing_that_a_forward_may_change() -> None:
    """Counters, lists, tensors and objects of the copy are its own; tied weights stay tied."""
    torch: Any = pytest.importorskip("torch")
    from probing.agent.sources.fit.fake_copy import FakeCopy
    from probing.agent.sources.fit.fake_step import fake_mode

    base: Any = torch.nn.Module

    class Counting(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(2, 2)
            self.two = torch.nn.Linear(2, 2)
            self.two.weight = self.one.weight
            self.seen: list[int] = []
            self.cache = SimpleNamespace(last=torch.zeros(3), calls=0)

    model = Counting()
    model.register_forward_hook(lambda *_: None)
    copies = FakeCopy(fake_mode())
    copied = copies.module(model)
    copied.seen.append(1)
    copied.cache.calls += 1
    assert (model.seen, model.cache.calls, copies.hooks) == ([], 0, 1)
    assert copied.two.weight is copied.one.weight
    assert copied.cache.last.device.type == "cpu"
    assert copied.cache.last is not model.cache.last
