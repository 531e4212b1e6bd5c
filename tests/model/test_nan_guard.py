"""`act nan-guard`: what it does about steps that are not finite, and what it leaves alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
from probing.agent.sources.actions.nan_guard import HiddenGradients  # noqa: E402
from probing.diagnosis.checkpoints import read_checkpoint  # noqa: E402
from probing.errors import ProbingError  # noqa: E402
from probing.messages.about.act import Act, Checkpoint, Clip, Lr, NanGuard, Undo  # noqa: E402
from tests.harness.targets import Target, wait_until  # noqa: E402

pytestmark = pytest.mark.torch

_OPTIMIZERS = ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam",
               "RMSprop", "Rprop", "SGD", "Adafactor")  # fmt: skip


class Row:
    """Keeps how it was completed."""

    outcome = ""

    def close(self, outcome: str) -> None:
        """See the row of a guard."""
        self.outcome = outcome


@pytest.mark.parametrize("name", _OPTIMIZERS)
def test_a_skipped_step_leaves_everything_as_it_is(name: str) -> None:
    """With hidden gradients no optimizer of torch changes a parameter, or a bit of its state."""
    parameters = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    more: dict[str, Any] = {"momentum": 0.9} if name in {"SGD", "RMSprop"} else {}
    optimizer = getattr(torch.optim, name)(parameters, lr=0.1, weight_decay=0.1, **more) if (
        name != "Rprop") else torch.optim.Rprop(parameters, lr=0.1)  # fmt: skip
    for _ in range(2):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    before = _copied(optimizer.state_dict()), [p.detach().clone() for p in parameters]
    gradients = [torch.full_like(p, math.nan) for p in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    row = Row()
    hidden = HiddenGradients(parameters, row)
    optimizer.step()
    hidden.give_back()
    assert row.outcome == "skipped"
    assert [p.grad for p in parameters] == gradients  # the very tensors
    assert all(float(p.grad.abs().sum()) == 0 for p in parameters)
    after = _copied(optimizer.state_dict()), [p.detach() for p in parameters]
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_an_optimizer_that_steps_without_gradients_is_told() -> None:
    """Where parameters have changed all the same, the row does not say that it was skipped."""
    parameter, row = torch.nn.Parameter(torch.ones(2)), Row()
    parameter.grad = torch.full((2,), math.nan)
    hidden = HiddenGradients([parameter], row)
    with torch.no_grad():
        parameter.mul_(0.9)
    hidden.give_back()
    assert row.outcome == "stepped"


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return value.clone() if isinstance(value, torch.Tensor) else value


class Guarded:
    """A training of ``guarded.py`` that can be given bad steps."""

    def __init__(self, target: Target) -> None:
        self.target = target
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PROBING_HOME", str(target.home))
            self.job = probing.connect(target.pid)

    def lines(self) -> list[list[str]]:
        """What the training has written of its steps."""
        text = (self.target.cwd / "log-0.txt").read_text("ascii")
        return [line.split() for line in text.split("\n")[:-1]]

    def poison(self, steps: int) -> None:
        """Have so many steps be bad, and wait until they are over."""
        self.job.eval(f"poison[0] = {steps}")
        wait_until(lambda: self._left() == "0", "the bad steps")
        now = len(self.lines())
        wait_until(lambda: len(self.lines()) > now + 1, "another step")

    def _left(self) -> str | None:
        """How many bad steps are to come; looked at beside the training, which it harms not."""
        return self.job.eval("poison[0]", now=True).value

    def rows(self) -> list[dict[str, Any]]:
        """The rows of python.nan_steps."""
        return self.job.query("FROM python.nan_steps ORDER BY seq").to_pylist()

    def sum(self) -> float:
        """The sum of all parameters after the last step."""
        return float(self.lines()[-1][2])

    def note(self) -> str:
        """What `status` says of the guard."""
        sql = "SELECT note FROM probing.sources WHERE source = 'nan-guard'"
        return str(self.job.query(sql).to_pylist()[0]["note"])


FULL = pytest.mark.nightly
Start = Callable[[str], Guarded]


@pytest.fixture
def start(program: Callable[..., Target]) -> Start:
    """Starts a training of a kind."""

    def start(kind: str) -> Guarded:
        target = program("guarded", kind)
        target.wait_for_step(3)
        return Guarded(target)

    return start


def test_bad_steps_are_skipped_warned_of_and_raised(start: Start) -> None:
    """Skipped: the parameters stay finite. Raised: in the place of the step, at the N-th in a row.

    Warned of: the step is made. Each is a row with its count, and `status` counts and advises.
    """
    guarded = start("plain")
    skip = guarded.job.act(NanGuard(do="skip", consecutive=3))
    assert (skip.state, [c.after for c in skip.changes]) == ("in force", ["skip"])
    guarded.poison(3)
    rows = guarded.rows()
    assert [(r["outcome"], r["consecutive"], r["bad_parameters"]) for r in rows] == [
        ("skipped", 1, 4), ("skipped", 2, 4), ("skipped", 3, 4)
    ]  # fmt: skip
    assert {r["step"] - n for n, r in enumerate(rows)} == {rows[0]["step"]}
    assert all(math.isnan(r["loss"]) for r in rows)
    assert (rows[0]["parameter"], rows[0]["optimizer"]) == ("0.weight", "AdamW")
    assert math.isfinite(guarded.sum())
    assert guarded.note().startswith("skip: 3 bad steps of ")
    raising = guarded.job.act(NanGuard(do="raise", consecutive=2))
    guarded.poison(3)
    assert [r["outcome"] for r in guarded.rows()[3:]] == ["skipped", "raised", "raised"]
    caught = str(guarded.job.eval("print(*caught, sep='\\n')").output)
    assert caught.startswith("NonFiniteStep: step ")
    assert "2 steps in a row; the optimizer has not stepped. Raised by `probing act" in caught
    guarded.job.act(Undo(number=raising.number))
    assert guarded.note().startswith("skip: ")
    guarded.job.act(NanGuard(do="warn"))
    guarded.poison(1)
    assert math.isnan(guarded.sum())
    assert guarded.rows()[6]["outcome"] == "warned"
    assert [c.after for c in guarded.job.act(NanGuard(do="off")).changes] == [None]
    seen = len(guarded.rows())
    guarded.poison(1)
    assert len(guarded.rows()) == seen


def test_only_the_optimizer_with_bad_gradients_is_skipped(start: Start) -> None:
    """Of two models, each with its own; the other one steps. Each may have a guard of its own."""
    guarded = start("two")
    guarded.job.act(NanGuard(do="skip"))
    steps = "int(optimizers[1].state[next(models[1].parameters())]['step'])"
    code = f"{steps} - int(optimizers[0].state[next(models[0].parameters())]['step'])"
    before = int(str(guarded.job.eval(code).value))
    guarded.poison(2)
    assert [r["outcome"] for r in guarded.rows()] == ["skipped", "skipped"]
    assert int(str(guarded.job.eval(code).value)) == before + 2
    guarded.job.act(NanGuard(do="warn", optimizer="1"))
    skipping, warning = sorted(guarded.note().split("; "), key=lambda note: "warn: " in note)
    assert ("skip: 2 bad steps of " in skipping, "warn: 0 bad steps of " in warning) == (True, True)
    assert skipping.partition(": ")[0] != warning.partition(": ")[0]
    guarded.job.act(NanGuard(do="off", optimizer="1"))
    assert guarded.note().startswith("skip: 2 bad steps of ")


def test_a_bad_micro_batch_is_found(start: Start) -> None:
    """The last loss is finite, the gradients that were accumulated are not: one bad step."""
    guarded = start("accumulated")
    guarded.job.act(NanGuard(do="skip"))
    guarded.poison(1)
    (row,) = guarded.rows()
    assert (row["outcome"], math.isfinite(row["loss"])) == ("skipped", True)
    assert math.isfinite(guarded.sum())


@pytest.mark.parametrize("kind", ["amp", "amp_fused", pytest.param("amp_foreach", marks=FULL)])
def test_amp_keeps_what_is_its_own(start: Start, tmp_path: Any, kind: str) -> None:
    """Steps that the scaler leaves out are its own; rate, clip and checkpoint work with it.

    A fused optimizer is called all the same, and unscales and leaves out by itself.
    """
    guarded = start(kind)
    act = guarded.job.act(NanGuard(do="skip"))
    assert "a gradient scaler is in use" in act.notes[0]
    scale = float(str(guarded.job.eval("scaler.get_scale()").value))
    guarded.poison(2)
    assert float(str(guarded.job.eval("scaler.get_scale()").value)) == scale / 4
    assert guarded.rows() == []
    assert math.isfinite(guarded.sum())
    path = tmp_path / "amp.pt"
    guarded.job.act(Checkpoint(path=str(path)))
    assert {"model", "optimizer", "scheduler", "scaler"} <= set(read_checkpoint(str(path)).keys)
    assert torch.load(path, weights_only=True)["scaler"]["scale"] == scale / 4
    rate: Act = guarded.job.act(Lr(scale=0.1))
    assert float(guarded.lines()[-1][1]) == pytest.approx(0.001)
    assert rate.notes == ()
    guarded.job.act(Clip(max_norm=1e-3))
    code = "float(sum(p.grad.square().sum() for p in models[0].parameters()) ** 0.5)"
    norms = [float(str(r.value)) for r in guarded.job.eval_steps(code, times=3)]
    assert all(norm <= 1.001e-3 for norm in norms)


def test_what_makes_no_sense_is_refused(start: Start) -> None:
    """An unknown verb and a count of 0, from a client that is not ours."""
    guarded = start("plain")
    for asked in (NanGuard(do="stop"), NanGuard(do="warn", consecutive=0)):
        with pytest.raises(ProbingError) as refused:
            guarded.job.act(asked)
        assert refused.value.code == "act_refused"
