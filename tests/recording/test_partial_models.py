"""A part of a model runs, and all of it again: what is left out, and what of it stays as it was."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import probing  # noqa: E402
from probing.agent.sources.actions.bypass import Bypass, Bypasses, read_call  # noqa: E402
from probing.agent.sources.actions.partial_model import KeepingLayers  # noqa: E402
from probing.agent.sources.actions.targets.attention import (  # noqa: E402
    attention_modules,
    only_inside,
)
from probing.agent.sources.actions.targets.scene import Scene  # noqa: E402
from probing.agent.sources.fit.layers import find_layers  # noqa: E402
from probing.agent.sources.model.blocks import repeated_blocks  # noqa: E402
from probing.agent.sources.shared.objects import Objects  # noqa: E402
from probing.errors import ActRefused, ProbingError  # noqa: E402
from probing.messages.about.act import KeepLayers, Lr, SkipAttention, Undo  # noqa: E402
from tests.harness.targets import Target, start_program  # noqa: E402
from tests.programs.deep import WIDTH, Block, Deep  # noqa: E402

pytestmark = pytest.mark.torch

DIGEST = (
    "import hashlib\n"
    "hashlib.sha256(b''.join(k.encode() + v.numpy().tobytes()"
    " for k, v in model.state_dict().items())).hexdigest()"
)
OF_LEFT_OUT = (
    "[(p.grad is None, optimizer.state[p]['step'].item(), p.detach().sum().item())"
    " for b in model.blocks[2:] for p in b.parameters()]"
)
WITHOUT_GRADIENT = "sorted(n for n, p in model.named_parameters() if p.grad is None)"


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training whose loss says what runs."""
    cwd = tmp_path_factory.mktemp("deep")
    target = start_program("deep", "still", home=cwd / "home", cwd=cwd)
    target.wait_for_step(3)
    yield target
    target.reap()


@pytest.fixture
def job(deep: Target, monkeypatch: pytest.MonkeyPatch) -> probing.Process:
    """The training as Python sees it."""
    monkeypatch.setenv("PROBING_HOME", str(deep.home))
    return probing.connect(deep.pid)


def _value(job: probing.Process, code: str) -> str:
    result = job.eval(code)
    assert result.error is None, result.error
    return str(result.value)


def _losses(job: probing.Process) -> set[str]:
    """Those of three whole steps from now on."""
    return {str(result.value) for result in job.eval_steps("loss.item()", times=3)}


def test_blocks_are_left_out_and_come_back_to_the_bit(deep: Target, job: probing.Process) -> None:
    """The loss is that of the first two blocks, then again what it was; no parameter has moved."""
    before, digest = _losses(job), _value(job, DIGEST)
    assert len(before) == 1
    act = job.act(KeepLayers(count=2))
    (change,) = act.changes
    said = (change.what, change.before, change.after, act.state)
    assert said == ("blocks of blocks that run", "all 4", "the first 2", "in force")
    torch.manual_seed(0)
    small = Deep()
    x = torch.randn(4, 6, WIDTH)
    del small.blocks[2:]
    assert _losses(job) == {repr(small(x).square().mean().item())}
    whole = "with torch.no_grad():\n    model.eval()\n    y = model(x).square().mean().item()\n"
    assert {_value(job, f"{whole}model.train() and y")} == before, "an evaluation runs whole"
    assert _value(job, DIGEST) == digest
    done = deep.run(str(deep.pid), "act", "undo")
    assert "blocks of blocks that run: the first 2 -> all 4" in done.stdout
    assert _losses(job) == before
    assert _value(job, DIGEST) == digest
    assert _value(job, "any('forward' in vars(m) for m in model.modules())") == "False"
    assert _value(job, WITHOUT_GRADIENT) == "[]"


def test_what_takes_no_part_is_not_moved(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No gradient, no step of the optimizer, no decay, though gradients are only set to zero.

    In a training of its own, since what does take part is moved.
    """
    target = program("deep", "still")
    target.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    kept = job.act(KeepLayers(count=2))
    rate = job.act(Lr(value=0.01))
    seen = [str(result.value) for result in job.eval_steps(OF_LEFT_OUT, times=3)]
    assert len(set(seen)) == 1
    assert "False," not in seen[0]
    job.act(Undo(number=rate.number))
    job.act(Undo(number=kept.number))
    seen = [str(result.value) for result in job.eval_steps(OF_LEFT_OUT, times=3)]
    assert len(set(seen)) == 3, "their optimizer counts on"


def test_attention_is_skipped_but_for_the_last(deep: Target, job: probing.Process) -> None:
    """Only the last one has gradients; two such actions stand over each other and are undone."""
    before = _losses(job)
    pid = str(deep.pid)
    done = deep.run(pid, "act", "skip-attention", "--except", "last")
    assert "attention that runs: all 4 modules -> blocks.3.attn" in done.stdout
    assert _losses(job) != before
    idle = _value(job, WITHOUT_GRADIENT)
    assert {name.rpartition("attn")[0] for name in eval(idle)} == {f"blocks.{n}." for n in range(3)}
    first = job.act(SkipAttention(keep="first"))
    assert first.changes[0].before == "blocks.3.attn"
    with pytest.raises(ProbingError, match="blocks has 4 blocks, so that none"):
        job.act(KeepLayers(count=4))
    over = job.act(KeepLayers(count=1))
    for number in (over.number, first.number, None):
        job.act(Undo(number=number))
    assert _losses(job) == before
    done = deep.run(pid, "act", "keep-layers", "1", "--in", "nowhere")
    assert (done.returncode, "those of blocks (4)" in done.stderr) == (4, True)


def test_blocks_of_other_shapes_are_refused(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step was looked at, what was seen is said, and nothing stays on the model."""
    target = program("deep", "narrow")
    target.wait_for_step(3)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    with pytest.raises(ProbingError, match=r"makes \[4, 6, 2\] of tensors of shapes \[4, 6, 4\]"):
        job.act(KeepLayers(count=1))
    with pytest.raises(ProbingError, match="no module in the model is attention"):
        job.act(SkipAttention())
    own = "type('Attn', (type(model[1]),), {'__module__': 'm'})(1, 1)"
    _value(job, f"model[1].attn = {own}")
    with pytest.raises(ProbingError, match=r"none of 1\.attn was called"):
        job.act(SkipAttention())
    left = "sum(len(m._forward_hooks) + ('forward' in vars(m)) for m in model.modules())"
    assert _value(job, left) == "0"


class GatedAttn(nn.Module):
    """Attention by its class; holds what is called so, too."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(4, 4)


class Layer(nn.Module):
    """A block with attention, and with names that only sound like it."""

    def __init__(self) -> None:
        super().__init__()
        self.mixer = GatedAttn()
        self.post_attention_norm = nn.LayerNorm(4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(8))


def test_blocks_and_attention_are_found_by_what_they_are() -> None:
    """Rows of one class, the outermost; attention by its class, not what sounds alike."""
    model = nn.ModuleDict(
        {
            "encoder": nn.ModuleList(Layer() for _ in range(3)),
            "body": nn.Sequential(nn.Linear(4, 4), Layer(), Layer(), nn.ReLU(), Layer()),
            "flat": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)),
        }
    )
    found = [(row.name, row.names) for row in repeated_blocks(model)]
    assert found == [
        ("encoder", ("encoder.0", "encoder.1", "encoder.2")),
        ("body", ("body.1", "body.2")),
    ]
    largest = find_layers(model)
    assert largest is not None
    assert (largest.path, largest.block, largest.number) == ("encoder", "Layer", 3)
    names = [name for name, _ in attention_modules(model)]
    assert names == [f"encoder.{n}.mixer" for n in range(3)] + [
        f"body.{n}.mixer" for n in (1, 2, 4)
    ]
    tied = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    tied[1].weight = tied[0].weight
    assert only_inside(tied, [tied[1]]) == [tied[1].bias]


def test_a_copy_of_a_module_that_is_stood_in_for_runs_whole() -> None:
    """Pickled or copied meanwhile, it has its own forward; agent gone, the module itself runs."""
    block, x = Block(), torch.randn(2, 3, WIDTH)
    whole = block(x.clone())
    call = read_call(block, (x,), {}, whole)
    bypasses = Bypasses("keep-layers", "", [(block, call)], [])
    bypasses.put_on([])
    out = block(x)
    assert torch.equal(out, x)
    assert out is not x
    for copied in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert torch.equal(copied(x.clone()), whole)
    bypasses.end()
    assert torch.equal(block(x.clone()), whole)
    bypasses.take_off()
    assert "forward" not in vars(block)


class AtWork:
    """Another thread that trains, in a pass or between two."""

    def __init__(self) -> None:
        self.is_passing = True

    def is_here(self) -> bool:
        """Never."""
        return False

    def is_elsewhere(self) -> bool:
        """While it is."""
        return self.is_passing


def test_a_gradient_is_let_go_of_only_while_no_other_thread_is_at_work_on_its_own() -> None:
    """The other may free it at the same moment, or add to it; the next call does it instead."""
    block, x, at_work = Block(), torch.randn(2, 3, WIDTH), AtWork()
    block(x).sum().backward()
    recording: Any = SimpleNamespace(
        safe_points=SimpleNamespace(at_work=at_work),
        threads=SimpleNamespace(state=SimpleNamespace(is_agents=False, native_id=1)),
        trainers=SimpleNamespace(is_alone=lambda _: False),
    )
    call, idle = read_call(block, (x,), {}, block(x)), list[Any](block.parameters())
    bypasses = Bypasses("keep-layers", "", [(block, call)], idle, recording)
    bypasses.put_on([])
    block(x)
    assert all(parameter.grad is not None for parameter in idle)
    at_work.is_passing = False
    block(x)
    assert [parameter.grad for parameter in idle] == [None] * len(idle)
    bypasses.take_off()


def test_a_forward_of_an_object_of_its_own_comes_back() -> None:
    """What a framework has put over a forward is there again; what it puts on top calls through."""
    module = nn.Linear(4, 4)
    own = module.forward
    module.forward = own  # as accelerate does
    x = torch.randn(2, 4)
    call = read_call(module, (x,), {}, module(x))
    bypass = Bypasses("keep-layers", "", [(module, call)], [])
    bypass.put_on([])
    above = module.forward
    assert isinstance(above, Bypass)
    bypass.take_off()
    assert vars(module)["forward"] is own
    bypass.put_on([])
    module.forward = functools.partial(module.forward)
    bypass.take_off()
    assert torch.equal(module(x), own(x))


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (lambda x: x[:, :2], r"makes [2, 2] of tensors of shapes [2, 4]"),
        (lambda x: (x, {"cache": x}), "returns a dict beside its output"),
        (lambda x: {"out": x}, "returns a dict, not a tensor"),
        (lambda x: x.argmax(1).expand(2, 2), "makes [2, 2]"),
        (lambda x: (x, None, (), x[0]), None),
    ],
)
def test_what_cannot_be_stood_in_for_is_told(result: Callable[[Any], Any], problem: str) -> None:
    """Another shape, or more than tensors and plain values, is a reason in words."""
    x = torch.randn(2, 4)
    seen = read_call(nn.Identity(), (x,), {}, result(x)).problem
    assert seen is problem or problem in str(seen)


def _scene(model: nn.Module) -> Scene:
    """A scene with a model and an optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objects = Objects()
    objects.optimizers.add(optimizer)
    objects.roots.add(model)
    training: Any = SimpleNamespace(
        names=lambda: {"model": model, "optimizer": optimizer},
        recording=SimpleNamespace(objects=objects),
    )
    rings: Any = SimpleNamespace()  # asked for by none of these
    return Scene(training, [], rings, 0.0, ring=rings)


def test_models_of_which_no_part_may_be_left_out_are_refused(tmp_path: Path) -> None:
    """Compiled, in DDP that waits for every gradient, one block many times, none at all."""
    group = torch.distributed
    group.init_process_group("gloo", f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        patient = nn.parallel.DistributedDataParallel(Deep(), find_unused_parameters=True)
        _scene(patient).refuse_whole_calls("it")
        waiting = nn.parallel.DistributedDataParallel(Deep())
        with pytest.raises(ActRefused, match="waits for a gradient of every") as refused:
            KeepingLayers(KeepLayers(count=1)).prepare(_scene(waiting))
        assert "find_unused_parameters=True" in refused.value.help
    finally:
        group.destroy_process_group()
    compiled = Deep()
    compiled.blocks[1]._compiled_call_impl = compiled.blocks[1]._call_impl  # as compile() does
    same = nn.Sequential(*[nn.Linear(4, 4)] * 3)
    for model, why in (
        (compiled, "the model is compiled"),
        (same, "one and the same module"),
        (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "the model has no repeated blocks"),
        (
            nn.ModuleDict({"one": same, "other": nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))}),
            "several places: one",
        ),
    ):
        with pytest.raises(ActRefused, match=why):
            KeepingLayers(KeepLayers(count=1)).prepare(_scene(model))
