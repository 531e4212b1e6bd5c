"""What copies of tokens and labels tell: coverage, shift, and texts.

Rules of this file: runs in a thread of the agent's, on copies that nobody else has. It works row
by row, so that torch starts no threads for it. A tokenizer is used only if the script has one in
its own names; nothing is imported for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any, NamedTuple

from ....messages.about.labels import LabelledSample, LabelsAnswer, TokenText

IGNORED = -100
"""The label that torch's cross entropy ignores unless it is told otherwise."""
_MOST_SHOWN = 64
_LONGEST = 4096
_MOST_NAMED = 256
_ALIKE = 0.95
"""The share of labels that must be equal to tokens for the two to be called so."""
_NAMES = ("tokenizer", "processing_class")
_LONGEST_TEXT = 64


class Pair(NamedTuple):
    """Copies of tokens and labels.

    Attributes:
        origin: Where they were read, in words.
        samples: How many samples there are in all.
        step: The training step then.
    """

    origin: str
    inputs_name: str
    inputs: Any
    inputs_shape: tuple[int, ...]
    labels_name: str
    labels: Any
    labels_shape: tuple[int, ...]
    samples: int
    step: int | None


class _Share(NamedTuple):
    """How many labels are equal to a token, of how many that could be."""

    equal: int = 0
    of: int = 0

    def plus(self, equal: int, of: int) -> _Share:
        return _Share(self.equal + equal, self.of + of)

    @property
    def value(self) -> float | None:
        return self.equal / self.of if self.of else None


def answer_about(pair: Pair, *, shown: int, waited_s: float) -> LabelsAnswer:
    """All that is known of a pair.

    Args:
        shown: How many samples to show token by token.
        waited_s: How long it was waited for.
    """
    trained = [int((row != IGNORED).sum()) for row in pair.labels]
    shares = _shares(pair)
    count = max(0, min(shown, _MOST_SHOWN, len(trained)))
    samples = tuple([_sample(pair, index) for index in range(count)])
    tokenizer = _tokenizer()
    texts = _texts(tokenizer, samples) if tokenizer is not None else ()
    return LabelsAnswer(
        origin=pair.origin,
        inputs=pair.inputs_name,
        labels=pair.labels_name,
        step=pair.step,
        waited_s=waited_s,
        samples=pair.samples,
        read=len(trained),
        trained=sum(trained),
        ignored=int(pair.labels.numel()) - sum(trained),
        all_ignored=tuple([index for index, n in enumerate(trained) if not n])[:_MOST_NAMED],
        same=shares[0].value,
        next=shares[1].value,
        previous=shares[2].value,
        shift=_shift(shares),
        tokenizer=type(tokenizer).__name__ if texts else None,
        texts=texts,
        shown=samples,
    )


def _shares(pair: Pair) -> tuple[_Share, _Share, _Share]:
    """The labels that are the token at their place, after it, and before it."""
    same = after = before = _Share()
    if pair.inputs_shape != pair.labels_shape:
        return same, after, before
    for tokens, labels in zip(pair.inputs, pair.labels, strict=True):
        is_trained = labels != IGNORED
        same = same.plus(*_compare(labels, tokens, is_trained))
        after = after.plus(*_compare(labels[:-1], tokens[1:], is_trained[:-1]))
        before = before.plus(*_compare(labels[1:], tokens[:-1], is_trained[1:]))
    return same, after, before


def _compare(labels: Any, tokens: Any, is_trained: Any) -> tuple[int, int]:
    """How many trained labels are equal to tokens, and of how many."""
    return int(((labels == tokens) & is_trained).sum()), int(is_trained.sum())


def _shift(shares: tuple[_Share, _Share, _Share]) -> str | None:
    words = ("equal", "shifted by one", "shifted backwards")
    if not shares[0].of:
        return None
    likeness = [share.value or 0.0 for share in shares]
    best = max(range(3), key=lambda index: likeness[index])
    return words[best] if likeness[best] >= _ALIKE else "unrelated"


def _sample(pair: Pair, index: int) -> LabelledSample:
    """One sample, cut where it is long."""
    return LabelledSample(
        sample=index,
        length=pair.labels_shape[1],
        tokens=tuple(pair.inputs[index][:_LONGEST].tolist()),
        labels=tuple(pair.labels[index][:_LONGEST].tolist()),
    )


def _tokenizer() -> Any:
    """A tokenizer among the script's own names, or one step below them."""
    main = dict(vars(sys.modules["__main__"]))
    values = [main[name] for name in _NAMES if name in main] + list(main.values())
    for value in values:
        if _is_tokenizer(value):
            return value
    for value in values:
        own = getattr(value, "__dict__", None) if _is_plain(value) else None
        for name in _NAMES:
            if type(own) is dict and _is_tokenizer(own.get(name)):
                return own[name]
    return None


def _is_plain(value: object) -> bool:
    """Whether a value is an object whose own attributes can be read without running its code."""
    return not isinstance(value, (ModuleType, type)) and all(
        "__getattribute__" not in cls.__dict__ or cls is object for cls in type(value).__mro__
    )


def _is_tokenizer(value: object) -> bool:
    """Whether a value's class has the methods of a tokenizer."""
    kind = type(value)
    if kind.__module__ == "builtins" or isinstance(value, ModuleType):
        return False
    has = [hasattr(kind, name) for name in ("convert_ids_to_tokens", "encode", "decode")]
    return has[0] or (has[1] and has[2])


def _texts(tokenizer: Any, samples: Iterable[LabelledSample]) -> tuple[TokenText, ...]:
    """What a tokenizer calls the tokens and labels that are shown; nothing where it fails."""
    wanted = sorted({n for s in samples for n in (*s.tokens, *s.labels) if n >= 0})
    try:
        if hasattr(type(tokenizer), "convert_ids_to_tokens"):
            found = list(tokenizer.convert_ids_to_tokens(wanted))
        else:
            found = [tokenizer.decode([number]) for number in wanted]
    except Exception:  # noqa: BLE001 - it is the user's, and may not know every number
        return ()
    return tuple(
        [
            TokenText(token=number, text=str(text)[:_LONGEST_TEXT])
            for number, text in zip(wanted, found, strict=False)
        ]
    )
