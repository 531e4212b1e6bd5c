"""What is said of a batch, whatever it is made of."""

from __future__ import annotations

import warnings
from collections import UserDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="these are facts about its tensors")

from probing.agent.sources.data import label_facts, labels
from probing.agent.sources.data.batches import (
    NO_FACTS,
    BatchFacts,
    BatchKinds,
    _search,
    tensors_of,
)
from probing.ring.format import NULL_INT, NULL_NAME
from probing.ring.names import decode_names
from probing.ring.writer import Names

pytestmark = pytest.mark.torch

Point = namedtuple("Point", "x y")  # noqa: PYI024 - those of users have no types either


@dataclass
class Sample:
    """A batch of a collate function of the user's."""

    image: Any
    note: str


class Tensor2(torch.Tensor):  # type: ignore[name-defined,misc]
    """A class of tensors whose attributes may run code of its own."""

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise AssertionError("code of the batch's own was run")


@pytest.fixture
def kinds(tmp_path: Path) -> Any:
    """Describes a batch by the text that the names file has of it, and its facts."""
    names = Names(tmp_path / "names")
    known = BatchKinds(names)

    def describe(batch: Any, *, is_collated: bool = True) -> tuple[str | None, BatchFacts]:
        facts = known.facts_of(batch, is_collated=is_collated, is_pinned=False)
        return decode_names((tmp_path / "names").read_bytes())[facts.tensors], facts

    yield describe
    names.close()


X = torch.zeros(4, 3)
IDS = torch.zeros(2, 5, dtype=torch.int64)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch says that these are to be replaced
    NESTED = torch.nested.nested_tensor([X, X[:2]])
CASES = [
    (X, "float32[4,3]"),
    ((X, IDS), "0: float32[4,3], 1: int64[2,5]"),
    ({"x": X, "name": ["a", "b"], "more": {"ids": IDS}}, "x: float32[4,3], more.ids: int64[2,5]"),
    (UserDict({"input_ids": IDS}), "input_ids: int64[2,5]"),
    (Point(X, IDS), "x: float32[4,3], y: int64[2,5]"),
    (Sample(image=X, note="a"), "image: float32[4,3]"),
    ([{"boxes": X[:1]}, {"boxes": X}], "0.boxes: float32[1,3], 1.boxes: float32[4,3]"),
    ({3: torch.tensor(1.0)}, "3: float32[]"),
    (torch.nn.Parameter(X), "float32[4,3]"),
    (X.as_subclass(Tensor2), "float32[4,3]"),
    (X.to_sparse(), "sparse_coo float32[4,3]"),
    (NESTED, "nested float32[?]"),
]


@pytest.mark.parametrize(("batch", "text"), CASES, ids=lambda case: type(case).__name__)
def test_a_batch_is_described(batch: Any, text: str, kinds: Any) -> None:
    """Names, types and sizes of its tensors, without any code of theirs."""
    assert kinds(batch)[0] == text


@pytest.mark.parametrize(
    "batch",
    [[X, IDS], (X,), [], [X, [IDS]], (X, "a"), [X] * 40, Point(X, IDS), {"x": X, "y": IDS}],
    ids=lambda batch: f"{type(batch).__name__} of {len(batch)}",
)
def test_the_usual_batches_are_looked_through_as_all_others(batch: Any) -> None:
    """Only at less cost."""
    found, searched = tensors_of(batch, torch.Tensor), _search(batch, torch.Tensor)
    assert [(name, id(tensor)) for name, tensor in found] == [
        (name, id(tensor)) for name, tensor in searched
    ]


def test_what_holds_no_tensor_has_no_facts(kinds: Any) -> None:
    """A batch of texts, an object of another kind, and a list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    for batch in (["a", "b"], object(), torch, None, endless, set()):
        assert kinds(batch)[1] == NO_FACTS


def test_sizes_are_counted_where_they_mean_something(kinds: Any) -> None:
    """Samples are the first size; a loader that does not collate must show that it has several."""
    _, facts = kinds({"input_ids": IDS, "labels": IDS})
    assert (facts.samples, facts.tokens, facts.bytes) == (2, 10, 160)
    assert kinds(X)[1].tokens == NULL_INT
    assert kinds(X.to_sparse())[1].bytes == NULL_INT
    assert kinds(torch.ones(1).expand(2**62))[1].bytes == NULL_INT
    assert kinds((X, torch.tensor(1)), is_collated=False)[1].samples == NULL_INT
    assert kinds((IDS[0], IDS[1]), is_collated=False)[1].samples == NULL_INT
    assert kinds((IDS, IDS), is_collated=False)[1].samples == 2


def test_endless_kinds_have_a_bounded_number_of_texts(tmp_path: Path) -> None:
    """Batches of ever new sizes get a general text; when those are too many, none at all."""
    names = Names(tmp_path / "names")
    known = BatchKinds(names)

    def facts_of(*shape: int) -> BatchFacts:
        return known.facts_of(torch.empty(shape), is_collated=True, is_pinned=False)

    numbers = {facts_of(1, length).tensors for length in range(600)}
    decoded = decode_names((tmp_path / "names").read_bytes())
    texts = {decoded[number] for number in numbers}
    assert len(texts) == 513
    assert "float32[1,?]" in texts
    for samples in range(2, 600):
        facts = facts_of(samples, 1000)
    assert facts.tensors == NULL_NAME
    assert facts.samples == 599
    names.close()


def pair(inputs: list[list[int]], labels_: list[list[int]]) -> label_facts.Pair:
    """Tokens and labels as they are copied."""
    tokens, answers = torch.tensor(inputs), torch.tensor(labels_)
    return label_facts.Pair(
        origin="the batch",
        inputs_name="x",
        inputs=tokens,
        inputs_shape=tuple(tokens.shape),
        labels_name="y",
        labels=answers,
        labels_shape=tuple(answers.shape),
        samples=len(answers),
        step=None,
    )


SHIFTS = [
    ([[1, 2, 3, 4]], [[-100, 2, 3, 4]], "equal"),
    ([[1, 2, 3, 4]], [[2, 3, 4, -100]], "shifted by one"),
    ([[1, 2, 3, 4]], [[-100, 1, 2, 3]], "shifted backwards"),
    ([[1, 2, 3, 4]], [[9, 9, 9, 9]], "unrelated"),
    ([[1, 2, 3, 4]], [[-100] * 4], None),
    ([[1, 2, 3, 4]], [[1, 2]], None),
]


@pytest.mark.parametrize(("tokens", "answers", "shift"), SHIFTS)
def test_shifts_are_told_apart(tokens: Any, answers: Any, shift: str | None) -> None:
    """Only labels that are trained on are compared; where there is nothing to compare, NULL."""
    answer = label_facts.answer_about(pair(tokens, answers), shown=1, waited_s=0.0)
    assert answer.shift == shift
    assert answer.shown[0].labels == tuple(answers[0])


PAIRS = [
    ({"input_ids": IDS, "attention_mask": IDS, "labels": IDS}, ("input_ids", "labels")),
    ({"labels": IDS, "attention_mask": IDS, "input_ids": IDS}, ("input_ids", "labels")),
    ({"input_ids": IDS, "attention_mask": IDS}, None),
    ({"input_ids": IDS, "labels": IDS[:, 0]}, None),
    ({"idx": IDS, "targets": IDS}, ("idx", "targets")),
    ((IDS + 5, IDS, IDS + 6), ("0", "2")),
    ((IDS + 5, IDS), None),
    ((X, IDS), None),
    ({"input_ids": (shared := IDS + 1), "labels": shared}, ("input_ids", "labels")),
]


@pytest.mark.parametrize(("batch", "names"), PAIRS)
def test_tokens_and_labels_are_found(batch: Any, names: tuple[str, str] | None) -> None:
    """By name; without names by order, with a mask of zeros and ones passed over."""
    look = labels._Look(_Still())
    look.batch_came(batch)
    found = look.pair
    assert names == (found and (found.inputs_name.split(":")[0], found.labels_name.split(":")[0]))


class _Still:
    """A training that counts no step."""

    safe_points: Any = None

    def step(self) -> int | None:
        return None
