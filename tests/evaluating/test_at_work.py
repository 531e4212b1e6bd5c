"""Scripts and frameworks as people have them: eval finds what it is asked for, actions hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

import probing  # noqa: E402
from probing.messages.about.act import Checkpoint, KeepLayers, Lr, SkipAttention, Undo  # noqa: E402
from tests.harness.targets import Target, start_program  # noqa: E402

pytestmark = pytest.mark.torch

NAMES = {
    "nano": (
        "(type(model).__name__ == 'Net', optimizer.param_groups is not None, loss.requires_grad,"
        " scaler.is_enabled(), batch[0] is X and batch[1] is Y, step > 0,"
        " type(train_loader).__name__ == 'cycle')"
    ),
    "local": (
        "(model is network, optimizer is sgd, scheduler is plan, train_loader is feed,"
        " dataloader is feed, loss is error, batch[0] is x and batch[1] is y, step > 0)"
    ),
    "accelerated": (
        "(model is network, optimizer is sgd, scheduler is plan, trainer is helper,"
        " train_loader is dataloader, train_loader in (feed, vars(feed).get('base_dataloader')),"
        " abs(float(loss) - error.item()) < 1e-6, batch[0] is x and batch[1] is y, step > 0)"
    ),
    "trainer": (
        "(model is trainer.model,"
        " optimizer in (trainer.optimizer, vars(trainer.optimizer).get('optimizer')),"
        " scheduler in (trainer.lr_scheduler, vars(trainer.lr_scheduler).get('scheduler')),"
        " batch['input_ids'].shape == (4, 8), train_loader is dataloader, float(loss) > 0,"
        " abs(step - trainer.state.global_step) <= 1)"
    ),
    "lit": (
        "(model is trainer.lightning_module, optimizer is trainer.optimizers[0],"
        " scheduler is trainer.lr_scheduler_configs[0].scheduler, float(loss) > 0,"
        " train_loader is dataloader is trainer.train_dataloader, batch[0].shape == (4, 8),"
        " abs(step - trainer.global_step) <= 1)"
    ),
}
MISSING = {
    "nano": ("scheduler", "rank", "trainer"),
    "local": ("scaler", "rank", "trainer"),
    "accelerated": ("scaler", "rank"),
    "trainer": ("scaler", "rank"),
    "lit": ("scaler", "rank"),
}
KINDS = [
    kind if kind in {"nano", "local"} else pytest.param(kind, marks=pytest.mark.slow)
    for kind in NAMES
]


@pytest.fixture(scope="module", params=KINDS)
def at_work(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Target]]:
    """A training of each kind, with its kind."""
    kind = request.param
    cwd = tmp_path_factory.mktemp(kind)
    target = start_program("at_work", kind, home=cwd / "home", cwd=cwd)
    target.wait_for_step(3)
    yield kind, target
    target.reap()


@pytest.fixture
def kind(at_work: tuple[str, Target]) -> str:
    """Which training it is."""
    return at_work[0]


@pytest.fixture
def job(at_work: tuple[str, Target], monkeypatch: pytest.MonkeyPatch) -> probing.Process:
    """The training as Python sees it."""
    monkeypatch.setenv("PROBING_HOME", str(at_work[1].home))
    return probing.connect(at_work[1].pid)


def test_the_usual_names_stand_for_the_right_things(kind: str, job: probing.Process) -> None:
    """Each name is the very object of the loop; one that there is nothing of is said so."""
    result = job.eval(NAMES[kind])
    assert result.error is None, result.error
    assert set(str(result.value).strip("()").split(", ")) == {"True"}, result.value
    for name in MISSING[kind]:
        said = job.eval(name).error
        assert f"probing knows {name} where a training has one; it has seen none here" in str(said)


def test_a_rate_stays_or_is_said_not_to(kind: str, job: probing.Process) -> None:
    """Schedulers follow; nanoGPT's own schedule is found out, and does not stand against a hold."""
    act = job.act(Lr(scale=0.01))
    assert act.state == "done"
    if kind == "nano":
        assert "the script sets the rate itself" in act.notes[0]
        act = job.act(Lr(scale=0.01, hold=True))
    else:
        assert act.notes == ()
    sql = f"FROM python.steps WHERE step > {act.step} AND lr IS NOT NULL ORDER BY step LIMIT 5"
    while len(rows := job.query(f"SELECT lr {sql}").to_pylist()) < 5:
        pass
    assert all(row["lr"] < 0.001 for row in rows)
    assert job.act(Undo(number=act.number)).changes


def test_a_checkpoint_is_loaded_by_the_model(
    kind: str, at_work: tuple[str, Target], job: probing.Process
) -> None:
    """All its keys are those of the model that is called, and none is missing."""
    path = at_work[1].cwd / "now.pt"
    act = job.act(Checkpoint(path=str(path)))
    state = torch.load(path, weights_only=True)
    assert state["step"] == act.step
    assert ("scaler" in state) is (kind == "nano")
    assert ("scheduler" in state) is (kind != "nano")
    of = "trainer.model" if kind == "trainer" else "model"
    load = f"__import__('torch').load({str(path)!r}, weights_only=True)['model']"
    code = f"{of}.state_dict().keys() == {load}.keys()"
    assert job.eval(code).value == "True"


def test_a_part_of_the_model_runs(kind: str, job: probing.Process) -> None:
    """Of transformers' GPT-2 the first block does; a model without blocks is said to have none."""
    if kind != "trainer":
        for asked in (KeepLayers(count=1), SkipAttention()):
            with pytest.raises(probing.ProbingError, match=r"no repeated blocks|is attention"):
                job.act(asked)
        return
    for asked, idle in (
        (KeepLayers(count=1), "transformer.h.1."),
        (SkipAttention(), "transformer.h.0.attn."),
    ):
        assert job.act(asked).state == "in force"
        names = "{n for n, p in trainer.model.named_parameters() if p.grad is None}"
        whole = f"{{n for n, p in trainer.model.named_parameters() if n.startswith({idle!r})}}"
        assert job.eval(f"{names} == {whole} != set()").value == "True"
        job.act(Undo())
    assert job.eval(names).value == "set()"
