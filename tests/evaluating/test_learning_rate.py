"""The learning rate that an action changes, beside every scheduler of torch."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing.agent.sources.actions.learning_rate import LearningRate  # noqa: E402
from probing.agent.sources.actions.rate_watch import RatesSet, RateWatch  # noqa: E402
from probing.agent.sources.actions.targets.chosen import Chosen  # noqa: E402
from probing.agent.sources.model.known_names import schedulers_among  # noqa: E402
from probing.agent.sources.shared.events import Events  # noqa: E402
from probing.agent.sources.shared.objects import Objects  # noqa: E402
from probing.errors import ActRefused  # noqa: E402
from probing.messages.about.act import Lr  # noqa: E402

pytestmark = pytest.mark.torch

sched = torch.optim.lr_scheduler
MAKERS: dict[str, Callable[[Any], Any]] = {
    "none": lambda o: None,
    "LambdaLR": lambda o: sched.LambdaLR(o, lambda n: 0.97**n),
    "MultiplicativeLR": lambda o: sched.MultiplicativeLR(o, lambda n: 0.97),
    "StepLR": lambda o: sched.StepLR(o, 4, 0.7),
    "MultiStepLR": lambda o: sched.MultiStepLR(o, [3, 9, 15], 0.5),
    "ExponentialLR": lambda o: sched.ExponentialLR(o, 0.95),
    "CosineAnnealingLR": lambda o: sched.CosineAnnealingLR(o, 40, eta_min=1e-3),
    "CosineAnnealingWarmRestarts": lambda o: sched.CosineAnnealingWarmRestarts(o, 7, eta_min=1e-3),
    "OneCycleLR": lambda o: sched.OneCycleLR(o, [0.2, 0.02], total_steps=60),
    "CyclicLR": lambda o: sched.CyclicLR(o, [0.01, 0.001], [0.1, 0.01], 5, cycle_momentum=False),
    "LinearLR": lambda o: sched.LinearLR(o, 0.2, total_iters=25),
    "PolynomialLR": lambda o: sched.PolynomialLR(o, 50, 2.0),
    "SequentialLR": lambda o: sched.SequentialLR(
        o, [sched.LinearLR(o, 0.1, total_iters=8), sched.CosineAnnealingLR(o, 40)], [8]
    ),
    "ChainedScheduler": lambda o: sched.ChainedScheduler(
        [sched.LinearLR(o, 0.1, total_iters=20), sched.ExponentialLR(o, 0.98)]
    ),
    "ReduceLROnPlateau": lambda o: sched.ReduceLROnPlateau(o, patience=2, factor=0.5),
}


NAMES = ("first", "second")


class FakeRecording:
    """Takes looks, and shows nobody anything."""

    def __init__(self) -> None:
        self.objects = Objects()
        self.events = Events()


class FakeScene:
    """One optimizer and the parts of its scheduler."""

    def __init__(self, optimizer: Any, scheduler: Any) -> None:
        self.hooks: list[Any] = []
        self.recording = FakeRecording()
        self._optimizer, self._scheduler = optimizer, scheduler

    def chosen(self, wanted: str | None) -> Chosen:
        """It."""
        return Chosen([self._optimizer], ())

    def refuse_alone(self, what: str) -> None:
        """There is one rank."""

    def schedulers(self, optimizer: Any) -> list[Any]:
        """The scheduler and its parts."""
        if self._scheduler is None:
            return []
        return [self._scheduler, *getattr(self._scheduler, "_schedulers", ())]


class ManyScene(FakeScene):
    """Two trainings, and an optimizer around one of them."""

    def __init__(self, trained: list[Trained], around: Any) -> None:
        super().__init__(None, None)
        self._known = {id(t.optimizer): (name, t) for name, t in zip(NAMES, trained, strict=True)}
        self._all = [*(t.optimizer for t in trained), around]

    def chosen(self, wanted: str | None) -> Chosen:
        """All of them."""
        return Chosen(self._all, ())

    def name_of(self, optimizer: Any) -> str:
        """What it is called."""
        return self._known[id(optimizer)][0] if id(optimizer) in self._known else "around"

    def schedulers(self, optimizer: Any) -> list[Any]:
        """Its own."""
        found = self._known.get(id(optimizer))
        return [] if found is None or found[1].scheduler is None else [found[1].scheduler]


class Trained:
    """Two parameter groups under a scheduler."""

    def __init__(self, name: str) -> None:
        a, b = (torch.nn.Parameter(torch.zeros(1)) for _ in range(2))
        groups = [{"params": [a], "lr": 0.1}, {"params": [b], "lr": 0.01}]
        self.optimizer = torch.optim.SGD(groups)
        self.scheduler = MAKERS[name](self.optimizer)
        self.scene: Any = FakeScene(self.optimizer, self.scheduler)
        self.is_told = name == "ReduceLROnPlateau"

    def step(self) -> list[float]:
        """One step; the rates after it."""
        self.optimizer.step()
        if self.is_told:
            self.scheduler.step(1.0)
        elif self.scheduler is not None:
            self.scheduler.step()
        return self.rates()

    def rates(self) -> list[float]:
        """Of both groups."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def told(self) -> list[float]:
        """What the scheduler says that they are."""
        told: list[float] = self.scheduler.get_last_lr()
        return told

    def act(self, asked: Lr) -> Any:
        """Apply an action at once."""
        action = LearningRate(asked)
        action.prepare(self.scene)
        return action.apply(self.scene)


@pytest.mark.parametrize("name", MAKERS)
def test_a_scaled_rate_stays_scaled_until_undone(name: str) -> None:
    """From the action on the rate is a tenth of the plan's, and from its undoing on the plan's."""
    plain, scaled = Trained(name), Trained(name)
    for _ in range(5):
        plain.step()
        scaled.step()
    applied = scaled.act(Lr(scale=0.1))
    assert scaled.rates() == pytest.approx([rate * 0.1 for rate in plain.rates()])
    assert applied.changes[0].what == "lr of group 0"
    for _ in range(15):
        expected = [rate * 0.1 for rate in plain.step()]
        assert scaled.step() == pytest.approx(expected, rel=1e-6)
    applied.undo()
    assert scaled.rates() == pytest.approx(plain.rates(), rel=1e-6)
    if plain.scheduler is not None:
        assert scaled.told() == pytest.approx(plain.told(), rel=1e-6)
    for _ in range(10):
        assert scaled.step() == pytest.approx(plain.step(), rel=1e-6)


@pytest.mark.parametrize("name", ["none", "LambdaLR"])
def test_a_rate_that_the_script_has_overwritten_is_its_own(name: str) -> None:
    """Undoing leaves it alone, and says so; what still carries the change is taken back."""
    trained = Trained(name)
    trained.step()
    applied = trained.act(Lr(scale=0.1))
    trained.optimizer.param_groups[0]["lr"] = 0.7
    undone = applied.undo()
    assert trained.rates()[0] == 0.7
    assert trained.rates()[1] == pytest.approx(0.01 * (0.97 if name == "LambdaLR" else 1.0))
    (left,) = undone.overwritten
    assert (left.what, left.after) == ("lr of group 0", "0.7")
    assert "lr of group 1" in {change.what for change in undone.changes}


@pytest.mark.parametrize("is_new", [True, False])
def test_an_optimizer_that_is_made_in_the_place_of_another_is_told(*, is_new: bool) -> None:
    """What was changed is gone with the old one; one that was there before is another matter."""
    trained, other = Trained("none"), Trained("none")
    events, made = trained.scene.recording.events, trained.scene.recording.objects.made
    if not is_new:
        made.add(other.optimizer)
    action = LearningRate(Lr(scale=0.1))
    action.prepare(trained.scene)
    applied = action.apply(trained.scene)
    for look in events.before_step:
        look(other.optimizer, (), {})
    told = " ".join(action.finish(trained.scene, applied, time.monotonic() + 0.2).notes)
    assert ("has made another optimizer since" in told) == is_new
    assert ("no two steps have ended" in told) != is_new


def test_a_scheduler_that_does_not_step_explains_no_rate() -> None:
    """The script sets it, even where it happens to be what the scheduler has set last."""
    trained = Trained("LambdaLR")
    for group in trained.optimizer.param_groups:
        group["lr"] = 0.5
    action = LearningRate(Lr(scale=0.1))
    action.prepare(trained.scene)
    applied = action.apply(trained.scene)
    for group, rate in zip(trained.optimizer.param_groups, trained.told(), strict=True):
        group["lr"] = rate
    for look in trained.scene.recording.events.before_step * 2:
        look(trained.optimizer, (), {})
    (note,) = action.finish(trained.scene, applied, time.monotonic() + 0.2).notes
    assert "the script sets the rate itself: it was 0.01 again" in note


@pytest.mark.parametrize(("is_new", "steps_again"), [(True, False), (True, True), (False, False)])
def test_a_rate_of_a_replaced_optimizer_is_not_taken_back(
    *, is_new: bool, steps_again: bool
) -> None:
    """What steps since has the script's own rate: that is said, and nothing is changed.

    One that was there before, or that steps beside it, has replaced nothing.
    """
    trained, other = Trained("LambdaLR"), Trained("none")
    events, made = trained.scene.recording.events, trained.scene.recording.objects.made
    if not is_new:
        made.add(other.optimizer)
    applied = trained.act(Lr(scale=0.1))
    for _ in range(3):
        for who in (trained, other) if steps_again else (other,):
            for look in events.before_step:
                look(who.optimizer, (), {})
    undone, rates = applied.undo(), trained.rates()
    if is_new and not steps_again:
        assert rates == pytest.approx([0.01, 0.001])
        (note,) = undone.notes
        assert "lr of group 0: 0.01" in note
        assert "has made another optimizer since" in note
        assert (undone.changes, undone.overwritten) == ((), ())
    else:
        assert rates == pytest.approx([0.1, 0.01])
        assert undone.notes == ()
    del applied, undone
    for look in events.before_step:
        look(trained.optimizer, (), {})
    assert all(isinstance(look.__self__, RateWatch) for look in events.before_step)


@pytest.mark.parametrize("asked", [Lr(scale=0.1), Lr(scale=0.1, hold=True)], ids=["once", "held"])
def test_what_is_kept_for_an_undo_keeps_no_optimizer_alive(asked: Lr) -> None:
    """One that the script lets go is gone with its scheduler and parameters; undoing says so."""
    trained = Trained("OneCycleLR")
    action = LearningRate(asked)
    action.prepare(trained.scene)
    applied = action.finish(trained.scene, action.apply(trained.scene), time.monotonic())
    gone = weakref.ref(trained.optimizer)
    del trained
    gc.collect()
    assert gone() is None
    assert applied.undo is not None
    undone = applied.undo()
    assert undone.overwritten == ()
    if not asked.hold:
        assert undone.changes == ()
        assert "lr of group 0: 0.0008" in undone.notes[0]
        assert "has made another optimizer since" in undone.notes[0]


def test_groups_that_were_loaded_since_are_the_scripts() -> None:
    """`load_state_dict` makes them anew: what it has put in place is left alone, and told."""
    trained = Trained("none")
    before = trained.optimizer.state_dict()
    applied = trained.act(Lr(scale=0.1))
    trained.optimizer.load_state_dict(before)
    undone = applied.undo()
    assert trained.rates() == pytest.approx([0.1, 0.01])
    assert {(c.what, c.after) for c in undone.overwritten} == {
        ("lr of group 0", "0.1"),
        ("lr of group 1", "0.01"),
    }


def test_a_scheduler_that_was_put_back_takes_the_rate_along() -> None:
    """After `load_state_dict` its numbers are not ours any more, and so the rate is not."""
    trained = Trained("LambdaLR")
    scheduler: Any = trained.scheduler
    before = scheduler.state_dict()
    before["base_lrs"] = list(before["base_lrs"])
    applied = trained.act(Lr(scale=0.1))
    trained.scheduler.load_state_dict(before)
    trained.step()
    rates = trained.rates()
    undone = applied.undo()
    assert trained.rates() == rates
    assert {change.what for change in undone.overwritten} == {"lr of group 0", "lr of group 1"}


def test_every_optimizer_is_acted_on_and_named() -> None:
    """A group that two of them share is changed once."""
    one, other = Trained("none"), Trained("LambdaLR")
    around = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    around.param_groups = one.optimizer.param_groups
    scene: Any = ManyScene([one, other], around)
    action = LearningRate(Lr(scale=0.1))
    action.prepare(scene)
    applied = action.apply(scene)
    assert one.rates() == other.rates() == pytest.approx([0.01, 0.001])
    whose = {change.what.partition(":")[0] for change in applied.changes}
    assert whose == {"first", "second"}
    assert applied.undo is not None
    applied.undo()
    assert one.rates() == other.rates() == pytest.approx([0.1, 0.01])


class AroundScene(ManyScene):
    """An optimizer around another one, which shares its groups and has the scheduler."""

    def schedulers(self, optimizer: Any) -> list[Any]:
        """As they are found in a process."""
        return schedulers_among([self._scheduler], optimizer)


def test_the_scheduler_of_an_optimizer_around_another_moves_the_rates_of_both() -> None:
    """What it has made of the change is taken back: it is no rate that the script has set."""
    one, plain = Trained("none"), Trained("CosineAnnealingLR")
    around = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    around.param_groups = one.optimizer.param_groups
    scene: Any = AroundScene([one, Trained("none")], around)
    one.scheduler = scene._scheduler = MAKERS["CosineAnnealingLR"](around)
    one.optimizer = around
    one.step(), plain.step()
    action = LearningRate(Lr(scale=0.1))
    action.prepare(scene)
    applied = action.apply(scene)
    for _ in range(3):
        scaled, wanted = one.step(), plain.step()
    assert scaled != pytest.approx(wanted)
    assert applied.undo is not None
    undone = applied.undo()
    assert not undone.overwritten
    assert one.step() == pytest.approx(plain.step())


def test_a_rate_is_set_for_every_group() -> None:
    """`act lr VALUE`: every group has it, a plan goes on from it, and undoing gives back each's."""
    trained, plain = Trained("LambdaLR"), Trained("LambdaLR")
    trained.step(), plain.step()
    applied = trained.act(Lr(value=0.005))
    assert trained.rates() == [0.005, 0.005]
    assert trained.step() == pytest.approx([0.005 * 0.97] * 2)
    applied.undo()
    assert trained.rates() == pytest.approx(plain.step())


def test_a_rate_in_a_tensor_stays_that_tensor() -> None:
    """A capturable optimizer's rate is changed in place, where the compiled step reads it."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    rate = torch.tensor(0.5)
    trained = Trained("none")
    trained.optimizer = torch.optim.AdamW([parameter], lr=rate, foreach=False)
    trained.scene = FakeScene(trained.optimizer, None)
    applied = trained.act(Lr(scale=0.5))
    assert trained.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == 0.25
    applied.undo()
    assert float(rate) == 0.5


@pytest.mark.parametrize(
    "asked", [Lr(), Lr(value=1.0, scale=1.0), Lr(value=float("nan")), Lr(scale=-1.0), Lr(scale=0.0)]
)
def test_a_rate_that_makes_no_sense_is_refused(asked: Lr) -> None:
    """Neither or both, not a number, negative, or a scale that could not be taken back."""
    with pytest.raises(ActRefused):
        LearningRate(asked)


def test_nothing_is_changed_where_not_everything_can_be() -> None:
    """A rate of 0 under a scheduler: refused, with the other group as it was."""
    trained = Trained("LambdaLR")
    trained.optimizer.param_groups[1]["lr"] = 0.0
    with pytest.raises(ActRefused, match="the rate is 0 now"):
        trained.act(Lr(value=0.3))
    assert trained.rates() == [0.1, 0.0]


@pytest.mark.parametrize(
    ("name", "is_told"), [("LambdaLR", True), ("ExponentialLR", False), ("none", False)]
)
def test_a_rate_that_goes_on_from_what_was_set_is_not_told(name: str, is_told: bool) -> None:
    """A scheduler that goes by the rate there is keeps what was set; one with a plan does not."""
    trained = Trained(name)
    trained.step()
    recording: Any = FakeRecording()
    recording.objects.optimizers = SimpleNamespace(alive=lambda: [trained.optimizer])
    rates = RatesSet(recording)
    for group in trained.optimizer.param_groups:
        group["lr"] = group["lr"] * 0.01
    rates.look_again()
    trained.step()
    for look in recording.events.before_step:
        look(trained.optimizer, (), {})
    told = rates.told(0.0)
    assert bool(told) is is_told
    assert recording.events.before_step == ()
    assert all("did not stay: LambdaLR made it 0.0" in sentence for sentence in told)
