"""What every storage is used for, held against what torch itself tells of the same model."""

from __future__ import annotations

import ctypes
import gc
import runpy
import sys
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="these are facts about its tensors")

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from probing.agent.recording.training_thread import Trainers
from probing.agent.sources.fit.kept_tensors import KeptTensors
from probing.agent.sources.leaks.containers import _lengths
from probing.agent.sources.leaks.graph_pools import GraphPools, graph_pools_of, pool_of
from probing.agent.sources.leaks.references.referrers import ReferrerSearch
from probing.agent.sources.leaks.references.tensors_over import tensors_over
from probing.agent.sources.shared.looks import Looks
from probing.agent.sources.shared.objects import Objects
from probing.agent.sources.shared.thread_state import ThreadStates
from probing.agent.sources.storage.births import Births, births_of
from probing.agent.sources.storage.bounded.sights import Limits
from probing.agent.sources.storage.memory_look import MemoryLook
from probing.agent.sources.storage.memory_tables import category_rows, segment_rows
from probing.agent.sources.storage.saved_tensors import Reach, saved_tensors
from probing.agent.sources.storage.standing_survey import StandingSurvey
from probing.agent.sources.storage.storages import Storage, storages_now, survey_now
from probing.agent.sources.storage.surveyor import Surveyor, surveyor_of
from probing.tables import MEMORY_CATEGORIES, MEMORY_SEGMENTS
from tests.harness.targets import ROOT, wait_until

pytestmark = pytest.mark.torch

GPT = runpy.run_path(str(ROOT / "examples" / "train_gpt.py"), run_name="train_gpt")["GPT"]
CATEGORY = [column.name for column in MEMORY_CATEGORIES.columns]


class Training:
    """A small language model, its optimizer and its batch, and what the agent knows of them."""

    def __init__(self) -> None:
        gc.collect()
        self._others = {(one.device, one.address) for one in storages_now(None)}
        torch.manual_seed(0)
        self.model = GPT(layers=2, dim=32, heads=2, context=16)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.codes = torch.randint(0, 14, (4, 16))
        self.recording: Any = SimpleNamespace(
            objects=Objects(), looks=Looks(), trainers=Trainers(), threads=ThreadStates()
        )
        self.recording.objects.roots.add(self.model)
        self.recording.objects.inputs.batch_came({"codes": self.codes})

    def storages(self, survey: Any = None) -> list[Storage]:
        """The storages that came with it: other tests may have left others."""
        return self.own(storages_now(self.recording, (), survey))

    def own(self, found: Iterable[Storage]) -> list[Storage]:
        """Those of some storages that came with it."""
        return [one for one in found if (one.device, one.address) not in self._others]

    def loss(self) -> Tensor:
        """One forward pass."""
        return cross_entropy(self.model(self.codes).flatten(0, 1), self.codes.flatten())

    def step(self) -> None:
        """One step, which leaves gradients."""
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


@pytest.fixture
def trained() -> Iterator[Training]:
    """A training after its first step, alone in the process."""
    training = Training()
    training.step()
    yield training
    surveyor_of(training.recording).close()


def bytes_of(storages: list[Storage]) -> Counter[str]:
    """What each category takes."""
    sums: Counter[str] = Counter()
    for one in storages:
        sums[one.category] += one.bytes
    return sums


def new_storages(make: Callable[[], Any]) -> list[Storage]:
    """The storages that something made brings about, while it is alive."""
    gc.collect()  # what is freed only then would leave its place to them
    before = {(one.device, one.address) for one in storages_now(None)}
    made = make()
    found = [one for one in storages_now(None) if (one.device, one.address) not in before]
    assert made is not None
    return found


def test_three_ways_agree_on_the_activations(trained: Training) -> None:
    """The graph walk finds what hooks on saved tensors see, and what torch's own tracker counts."""
    # Takes seconds, which at the top each worker would pay when it collects.
    from torch.distributed._tools.mem_tracker import MemTracker

    kept = {p.untyped_storage().data_ptr() for p in trained.model.parameters()}
    hooked: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in kept:
            hooked[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = trained.loss()
    sums = bytes_of(trained.storages())
    walked = sums["activations"] + trained.codes.nbytes
    assert walked == sum(hooked.values())
    del loss
    tracker = MemTracker()
    tracker.track_external(trained.model, trained.optimizer, trained.codes)
    with tracker:
        loss = trained.loss()
        counted = tracker.get_tracker_snapshot("current")[torch.device("cpu")]
    assert counted["Activation"] + trained.codes.nbytes == pytest.approx(walked, abs=64)
    assert loss.requires_grad


def test_a_step_leaves_everything_in_its_category(trained: Training) -> None:
    """Parameters, gradients and both moments of Adam are exact, and nothing else is left over."""
    sums = bytes_of(trained.storages())
    size = sum(parameter.nbytes for parameter in trained.model.parameters())
    count = len(list(trained.model.parameters()))
    assert sums["parameters"] == sums["gradients"] == size
    assert sums["optimizer_state"] == 2 * size + 4 * count
    assert sums["inputs"] == trained.codes.nbytes
    assert sums["activations"] == 0
    assert sums["other"] < 0.05 * sums.total()


def test_names_are_those_of_the_modules(trained: Training) -> None:
    """A parameter, its gradient and its state carry the module's name and the parameter's."""
    wanted = "blocks.1.mlp.0"
    found = {
        (one.category, one.name)
        for one in trained.storages()
        if one.module == wanted and (one.name or "").startswith("weight")
    }
    assert found == {
        ("parameters", "weight"),
        ("gradients", "weight"),
        ("optimizer_state", "weight.step"),
        ("optimizer_state", "weight.exp_avg"),
        ("optimizer_state", "weight.exp_avg_sq"),
    }


def test_a_survey_changes_nothing_but_the_time(trained: Training) -> None:
    """With the old objects looked for beforehand, every storage is found just the same."""
    loss = trained.loss()
    gc.collect()
    survey = survey_now()
    gc.disable()
    try:
        fast = trained.storages(survey)
        assert survey.is_good()
        slow = trained.storages()
    finally:
        gc.enable()
    assert bytes_of(fast) == bytes_of(slow)
    assert loss.requires_grad


@pytest.fixture
def surveyor() -> Iterator[Surveyor]:
    """One whose thread ends with the test."""
    made = Surveyor()
    yield made
    made.close()


def survey_threads() -> list[threading.Thread]:
    """The threads that make surveys."""
    return [one for one in threading.enumerate() if one.name == "probing-survey"]


def test_one_thread_makes_all_surveys(surveyor: Surveyor) -> None:
    """Whoever asks, it is the same one, and it ends when it is told to, after what is in hand."""
    wait_until(
        lambda: survey_threads() == [], "no survey is made"
    )  # those of the test before may be about to end
    gc.disable()  # one in between would make the survey old at once
    try:
        assert surveyor.survey().result().is_good()
    finally:
        gc.enable()
    first = survey_threads()
    asking = [threading.Thread(target=surveyor.survey) for _ in range(3)]
    for one in asking:
        one.start()
        one.join()
    assert survey_threads() == first
    last = surveyor.survey()
    surveyor.close()
    surveyor.close()
    first[0].join()
    assert last.done()


def test_the_surveyor_keeps_no_survey(surveyor: Surveyor) -> None:
    """What it has made is gone as soon as who asked for it lets go."""
    survey = weakref.ref(surveyor.survey().result())
    wait_until(lambda: survey() is None, "the survey is gone")


@pytest.mark.parametrize("look", [survey_now, lambda: _lengths(lambda: 0)])
def test_what_looks_beside_the_training_keeps_no_tensor(look: Callable[[], Any]) -> None:
    """A tensor that goes while another thread looks at all objects is gone at once."""
    rounds = 0
    is_over = threading.Event()

    def look_again() -> None:
        nonlocal rounds
        while not is_over.is_set():
            look()
            rounds += 1

    looking, usual = threading.Thread(target=look_again), sys.getswitchinterval()
    tensors = [torch.zeros(1) for _ in range(5000)]
    gc.collect()
    gc.disable()  # a collection in the midst runs Python code of whoever watches the collector
    sys.setswitchinterval(1e-5)
    looking.start()
    try:
        gone = []
        while tensors and rounds < 2:
            reference = weakref.ref(tensors.pop())
            gone.append(reference() is None)
            time.sleep(1e-4)  # lets the other thread go on
    finally:
        sys.setswitchinterval(usual)
        gc.enable()
        is_over.set()
        looking.join()
    assert all(gone)


def test_a_standing_survey_is_renewed_once_it_is_old(surveyor: Surveyor) -> None:
    """Who asks for an old one gets none, does not wait, and gets a good one later."""
    standing = StandingSurvey(surveyor)
    wait_until(standing.has_come, "the first survey")
    gc.collect()
    gc.disable()
    try:
        assert standing.take() is None
        assert wait_until(standing.take, "a new survey").is_good()
    finally:
        gc.enable()
    standing.close()
    assert standing.take() is None


def test_a_standing_survey_is_not_waited_for(surveyor: Surveyor) -> None:
    """It is begun where requests are answered, and none could be meanwhile."""
    goes_on = threading.Event()
    surveyor.begin(goes_on.wait)
    standing = StandingSurvey(surveyor)
    assert not standing.has_come()
    assert standing.take() is None
    goes_on.set()
    wait_until(standing.has_come, "the survey")


def test_the_newest_graphs_are_walked_as_far_as_there_is_time() -> None:
    """What the first look left out the second does, too, though it has all the time."""
    ends = [torch.ones(8, requires_grad=True).mul(number).exp() for number in range(60)]
    nodes = [end.grad_fn for end in ends]
    now = iter([0.0, 0.0, 2.0, *[3.0] * 999])
    reach = Reach(1.0, clock=lambda: next(now))
    walked = [saved.number for saved in saved_tensors(nodes, reach)]
    assert reach.most == 64
    assert max(walked) == max(node._sequence_nr() for node in nodes if node is not None)
    assert [saved.number for saved in saved_tensors(nodes, reach)] == walked
    whole = Reach(60.0)
    assert len(list(saved_tensors(nodes, whole))) > len(walked)
    assert whole.most is None


def test_saved_tensors_are_never_unpacked(trained: Training) -> None:
    """Hooks that would compute something anew are not called; what they packed is counted."""

    def refuse(_: Any) -> Tensor:
        raise AssertionError("unpacked")

    with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.device, t.detach()), refuse):
        loss = trained.loss()
    assert bytes_of(trained.storages())["activations"] > 0
    again = checkpoint(trained.model, trained.codes, use_reentrant=False)
    plain = trained.model(trained.codes)
    assert loss.requires_grad
    assert again.requires_grad
    assert plain.requires_grad


def wide_view() -> Tensor:
    """A single element of a large tensor."""
    return torch.zeros(1000, 1000)[:1, :1]


def tied() -> nn.Module:
    """Two modules with one weight."""
    model = nn.ModuleList([nn.Embedding(500, 128), nn.Linear(128, 500, bias=False)])
    model[1].weight = model[0].weight
    return model


def sparse() -> Tensor:
    """Three elements by their places: 3 * 2 * 8 bytes of indices, 3 * 4 of values."""
    return torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 2], [0, 1, 2]]), torch.ones(3), (9, 9), check_invariants=False
    ).coalesce()


def nested() -> Tensor:
    """Five numbers in two rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


class Touchy(Tensor):
    """Fails whatever is asked of it."""

    @classmethod
    def __torch_function__(cls, *_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("code of a subclass ran")


def wrapped() -> Tensor:
    """A tensor of a class of the user's own."""
    return torch.ones(7).as_subclass(Touchy)


def fake() -> Any:
    """A tensor that only pretends."""
    with FakeTensorMode():
        return torch.empty(1000)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(wide_view, [4_000_000], id="a view counts as its whole storage"),
        pytest.param(tied, [256_000], id="a tied weight counts once"),
        pytest.param(sparse, [12, 48], id="a sparse tensor counts as its parts"),
        pytest.param(nested, [20], id="a nested tensor has no shape"),
        pytest.param(wrapped, [28], id="no code of a subclass runs"),
        pytest.param(lambda: torch.empty(9, device="meta"), [], id="meta has no memory"),
        pytest.param(fake, [], id="fake has no memory"),
        pytest.param(lambda: nn.LazyLinear(3, bias=False), [], id="lazy has none yet"),
        pytest.param(lambda: torch.ones(4).expand(1000, 4), [16], id="expanding takes nothing"),
        pytest.param(
            lambda: torch.zeros(8, dtype=torch.int8), [8], id="an eighth-bit tensor in bytes"
        ),
    ],
)
def test_aliases_and_strange_tensors(make: Callable[[], Any], expected: list[int]) -> None:
    """Every storage counts once, at its size, whatever kind of tensor is over it."""
    assert sorted(one.bytes for one in new_storages(make)) == expected


def test_a_look_at_a_function_keeps_none_of_its_variables() -> None:
    """A tensor in a local variable is temporary, and dies with it although it was looked at."""

    def work() -> tuple[list[Storage], list[Storage]]:
        own = torch.zeros(1234)
        during = [one for one in storages_now(None) if one.bytes == own.nbytes]
        size, own = own.nbytes, torch.zeros(1)
        return during, [one for one in storages_now(None) if one.bytes == size]

    during, after = work()
    assert [one.category for one in during] == ["temporary"]
    assert after == []


def test_a_convolutional_model_is_told_apart_too() -> None:
    """Buffers of batch norms are exact, and what is not told apart is below five percent."""
    gc.collect()
    others = {(one.device, one.address) for one in storages_now(None)}
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(4, 3, 16, 16)
    model(images).square().mean().backward()
    optimizer.step()
    gc.collect()
    own = {"parameters", "gradients", "optimizer_state", "buffers"}
    found = [one for one in storages_now(None) if (one.device, one.address) not in others]
    buffers = [one for one in found if one.category == "buffers" and one.module == "1"]
    assert sorted(one.bytes for one in buffers) == [8, 64, 64]
    sums = bytes_of(found)
    assert all(sums[category] > 0 for category in own)
    assert sums["other"] < 0.05 * sums.total()


def test_a_storage_is_told_from_one_that_lay_at_its_place() -> None:
    """What came between two looks has its step, also where it lies in the place of another."""
    births = Births()

    def born(step: int | None) -> dict[int, int | None]:
        found = storages_now(None, (), None, births.sighting(step))
        return {one.address: one.born for one in found if one.bytes == 4 * 4321}

    births.begin()
    old = torch.zeros(4321)
    place = old.data_ptr()
    assert born(None) == {place: None}
    del old
    young = [torch.zeros(4321) for _ in range(3)]
    assert born(5) == dict.fromkeys((one.data_ptr() for one in young), 5)
    births.end()
    births.begin()
    assert born(None) == dict.fromkeys((one.data_ptr() for one in young), 5)
    del young[0]
    births.end()
    assert len(births) == 2, "what is gone is let go of"
    births.close()
    assert len(births) == 0


def test_births_and_surveys_of_a_recording_are_one() -> None:
    """Whoever asks again gets what has been there, and it is closed with the recording."""
    recording: Any = SimpleNamespace(looks=Looks())
    births, surveyor = births_of(recording), surveyor_of(recording)
    assert births_of(recording) is births
    assert surveyor_of(recording) is surveyor
    assert recording.looks.kept() == [births, surveyor]


def look_at(training: Training) -> MemoryLook:
    """A look over one step of a training that calls the agent by hand, as the real hooks do."""
    recording = training.recording
    recording.step, recording.training_thread, recording.looks.memory = 7, 1, None
    look = MemoryLook(recording)
    assert not look.step_ended()
    training.optimizer.zero_grad()
    loss = training.loss()
    recording.looks.memory.backward_began(((loss,),))
    loss.backward()
    training.optimizer.step()
    assert look.step_ended()
    return look


def test_activations_are_told_apart_by_module(trained: Training) -> None:
    """Each is the module's in whose call it was saved, and the loss's own are nobody's."""
    look = look_at(trained)
    own = trained.own(look.moments[1].storages)
    kept = [one for one in own if one.category == "activations"]
    by_module = Counter[Any]()
    for one in kept:
        by_module[one.module] += one.bytes
    hidden = 4 * 16 * 4 * 32 * 4  # batch, length, four times the width, bytes
    assert by_module["blocks.0.mlp.1"] == by_module["blocks.1.mlp.1"] == hidden
    scores = 4 * 16 * 14 * 4
    assert by_module[None] == pytest.approx(scores, abs=64)


def test_a_look_leaves_the_training_as_it_was(trained: Training) -> None:
    """After the same two steps the weights are the same to the bit, and no hook is left."""
    twin = Training()
    twin.step()
    twin.step()
    look_at(trained)
    pairs = zip(trained.model.parameters(), twin.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    modules = trained.model.modules()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    assert trained.recording.looks.memory is None


def test_a_look_that_is_given_up_leaves_no_hook(trained: Training) -> None:
    """Nor does a backward pass that begins after it add anything."""
    recording = trained.recording
    recording.step, recording.training_thread, recording.looks.memory = 7, 1, None
    look = MemoryLook(recording)
    assert not look.step_ended()
    assert any(module._forward_hooks for module in trained.model.modules())
    look.give_up()
    modules = trained.model.modules()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
    assert recording.looks.memory is None
    look.backward_began(((trained.loss(),),))
    assert [moment.moment for moment in look.moments] == ["now"]
    assert look.step_ended()


def test_categories_sum_to_the_total(trained: Training) -> None:
    """Of each moment, the categories sum to exactly what all storages take, and shares to one."""
    moments = look_at(trained).moments
    rows: list[dict[str, Any]] = [
        dict(zip(CATEGORY, row, strict=True)) for row in category_rows(moments)
    ]
    for moment in moments:
        own = [row for row in rows if row["moment"] == moment.moment]
        assert sum(row["bytes"] for row in own) == sum(one.bytes for one in moment.storages)
        assert sum(row["share"] for row in own) == pytest.approx(1.0)


def test_pools_of_graphs_are_told_from_the_common_one() -> None:
    """Three segments of two graphs, as torch's allocator lists them; none told, none said."""
    segments = [
        {"segment_pool_id": pool, "total_size": size}
        for pool, size in (((0, 0), 1 << 30), ((0, 1), 2 << 20), ((0, 1), 4 << 20), ((0, 2), 8))
    ]
    assert graph_pools_of(segments) == GraphPools(2, (6 << 20) + 8)
    assert graph_pools_of([]) == GraphPools(0, 0)
    assert graph_pools_of(None) == graph_pools_of([{"total_size": 1}]) == GraphPools(None, None)
    assert [pool_of(segment) for segment in segments] == [None, "0:1", "0:1", "0:2"]


def test_segments_add_up() -> None:
    """Allocated, pending and free bytes of a segment sum to what is reserved."""
    segment = {
        "device": 0, "address": 140_000, "total_size": 2_097_152, "allocated_size": 1_024,
        "active_size": 1_536, "requested_size": 1_400, "stream": 0, "segment_type": "small",
        "is_expandable": False,
        "blocks": [
            {"address": 140_000, "size": 1_024, "requested_size": 1_000,
             "state": "active_allocated"},
            {"address": 141_024, "size": 512, "requested_size": 400,
             "state": "active_pending_free"},
            {"address": 141_536, "size": 2_095_616, "requested_size": 0, "state": "inactive"},
        ],
    }  # fmt: skip
    names = [column.name for column in MEMORY_SEGMENTS.columns]
    row = dict(zip(names, next(segment_rows([segment])), strict=True))
    parts = (row["allocated_bytes"], row["pending_bytes"], row["free_bytes"])
    assert parts == (1_024, 512, 2_095_616)
    assert sum(parts) == row["reserved_bytes"]
    assert (row["rounding_bytes"], row["largest_free_bytes"]) == (24, 2_095_616)


def test_quantized_weights_are_known_by_the_numbers_they_hold() -> None:
    """Packed by bitsandbytes or by GPTQ, or of float8: so many numbers, in whatever bytes."""

    class Params4bit(nn.Parameter):
        """As that of bitsandbytes, which keeps the shape beside the bytes."""

    class Words(nn.Module):
        """As a layer of GPTQ."""

        def __init__(self) -> None:
            super().__init__()
            self.bits = 4
            self.register_buffer("qweight", torch.zeros(8, 32, dtype=torch.int32))

    def packed() -> Any:
        layer = torch.nn.Module()
        weight: Any = Params4bit(torch.zeros(512, dtype=torch.uint8), requires_grad=False)
        weight.quant_state = SimpleNamespace(shape=(32, 32))
        layer.weight = weight
        return layer

    def eight() -> Any:
        layer = torch.nn.Module()
        numbers = torch.zeros(64, 64).to(torch.float8_e4m3fn)
        layer.weight = torch.nn.Parameter(numbers, requires_grad=False)
        return layer

    found = {make: new_storages(make) for make in (packed, eight, Words)}
    assert {(one.bytes, one.numbers) for one in found[packed]} == {(512, 1024)}
    assert {(one.bytes, one.numbers) for one in found[eight]} == {(4096, 4096)}
    assert {(one.bytes, one.numbers) for one in found[Words]} == {(1024, 2048)}


def test_adapters_are_what_is_trained_of_a_frozen_model() -> None:
    """Their weights, gradients and state are told apart; a model that is trained has none."""

    def adapted() -> Any:
        base = torch.nn.Linear(64, 64, bias=False).requires_grad_(requires_grad=False)
        down, up = torch.nn.Linear(64, 4, bias=False), torch.nn.Linear(4, 64, bias=False)
        model = torch.nn.ModuleList([base, down, up])
        own = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(own)
        x = torch.ones(2, 64)
        (base(x) + up(down(x))).sum().backward()
        optimizer.step()
        return model, optimizer

    found = [one for one in new_storages(adapted) if one.is_adapter]
    sums = bytes_of(found)
    weights = 2 * 64 * 4 * 4
    assert (sums["parameters"], sums["gradients"]) == (weights, weights)
    assert sums["optimizer_state"] >= 2 * weights
    trained = new_storages(lambda: torch.nn.Linear(8, 8))
    assert not [one for one in trained if one.is_adapter]


def weak_references(tensor: Tensor) -> int:
    """How many of torch's own there are to a tensor's storage, as of torch 2.10 on."""
    place = tensor.untyped_storage()._cdata + 12
    return (ctypes.c_uint32.from_address(place).value & 0x7FFFFFFF) - 1


def test_a_weak_reference_is_let_go_of_once(trained: Training) -> None:
    """Whoever ends a look while the training thread is in it: twice would free what is in use."""
    kept = KeptTensors(trained.recording)

    class Ending(nn.Module):
        """A model that is asked for its parameters as the look is ended."""

        is_last = False

        def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
            if self.is_last:
                kept.close()
            return trained.model.head.parameters()

    root = Ending()
    seen = [trained.codes, *trained.model.parameters()]
    before = [weak_references(one) for one in seen]
    kept.called(root, ())
    kept.called(root, ())
    assert kept.found()
    assert [weak_references(one) for one in seen] != before
    root.is_last = True
    kept.called(root, ())
    assert kept.found() == ()
    kept.close()
    assert [weak_references(one) for one in seen] == before


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What tests before have left is gone, and nothing goes by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_many_tensors_take_no_longer_than_a_look_may() -> None:
    """The newest are told of; what a look leaves out is left out by those after it, too."""
    births, kept = Births(), [torch.zeros(2) for _ in range(5000)]
    births.begin()
    first = Limits(1.0, 0.0)
    seen = {one.address for one in storages_now(None, (), None, births.sighting(None), first)}
    left_out = [one for one in kept if one.data_ptr() not in seen]
    assert len(left_out) > 2000
    assert first.left_out >= len(left_out)
    views, new = [one[:1] for one in left_out[:3]], [torch.zeros(3) for _ in range(3)]
    found = storages_now(None, (), None, births.sighting(1), Limits(1.0, 60.0))
    assert {one.address for one in found if one.born == 1} >= {one.data_ptr() for one in new}
    there = {one.address for one in found}
    assert there.isdisjoint(one.data_ptr() for one in (*left_out, *views))
    assert births.gone() == 0
    keys = {id(one) for one in left_out[-5:]}
    del left_out[-5:]
    kept = [one for one in kept if id(one) not in keys]
    assert births.gone() == 5
    births.end()
    assert not births.left_out, "nobody looks any more"
    whole = Limits(1.0, 60.0)
    there = {one.address for one in storages_now(None, (), None, births.sighting(None), whole)}
    assert there.issuperset(one.data_ptr() for one in kept)
    assert whole.left_out == 0
    births.close()


@pytest.mark.parametrize("is_long", [False, True])
def test_who_refers_to_one_of_many_is_looked_for_among_the_newest(
    trained: Training, monkeypatch: pytest.MonkeyPatch, is_long: bool
) -> None:
    """As far as there is time; what was left out is said, and nobody is named for it."""
    monkeypatch.setattr(f"{tensors_over.__module__}._OVER_S", 60.0 if is_long else 0.0)
    kept = [torch.zeros(2) for _ in range(5000)]
    oldest, newest = kept[0].data_ptr(), kept[-1].data_ptr()
    weight, sparse = trained.model.head.weight.data_ptr(), torch.eye(5).to_sparse()
    wanted = [oldest, newest, weight, sparse._values().data_ptr()]
    trained.recording.step = 1
    search = ReferrerSearch(trained.recording, wanted, 1)
    while not search.step_ended():
        pass
    found = {one.address: (one, holder.kind) for one, holder in
             zip(search.sought, search.holders, strict=True)}  # fmt: skip
    assert [found[at][0].bytes for at in wanted[1:3]] == [8, weight_bytes(trained)]
    assert found[newest][1] != "unknown"
    assert found[wanted[3]][0].tensor_id is not None
    (_, *told) = search.notes()
    if is_long:
        assert (found[oldest][0].tensor_id, told) == (id(kept[0]), [])
        return
    assert (found[oldest][0].device, found[oldest][1]) == (None, "unknown")
    (left_out,) = (int(note.partition(" ")[0].replace(",", "")) for note in told)
    assert left_out > 2000
    assert "tensors, the oldest, were left out, for want of time" in told[0]


def weight_bytes(trained: Training) -> int:
    """Of the weight of its last module."""
    return int(trained.model.head.weight.untyped_storage().nbytes())


def test_what_is_told_of_many_is_what_is_told_of_each() -> None:
    """Views count beside what they are of; a large storage at a place is told of as it is."""
    kept = [torch.zeros(40, dtype=torch.int8), torch.zeros(0), torch.eye(5).to_sparse()]
    kept += [kept[0][:4], kept[0][4:].view(6, 6)]  # variables would make them temporary
    kept.append(torch.zeros(3, dtype=torch.float64, requires_grad=True))
    found = {one.address: one for one in storages_now(None)}
    one = found[kept[0].data_ptr()]
    assert (one.category, one.bytes, one.tensors, one.numbers) == ("other", 40, 3, 40)
    assert one.tensor_id in {id(kept[0]), id(kept[3]), id(kept[4])}
    one = found[kept[-1].data_ptr()]
    assert (one.category, one.bytes, one.shape, one.requires_grad) == ("other", 24, (3,), True)
    assert (one.dtype, one.numbers, one.tensor_id) == ("float64", None, id(kept[-1]))
    assert kept[2]._values().data_ptr() in found
