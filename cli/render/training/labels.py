"""Tokens beside labels: what is trained on, what is ignored, and how the two lie to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....units import percent
from ..table import columns, render_table
from ..text import escape_controls, plural

if TYPE_CHECKING:
    from ....messages.about.labels import LabelledSample, LabelsAnswer

IGNORED = -100
_PIPE_WIDTH = 120
_NAMED = 20
_SHIFTS = {
    "equal": "the labels are the tokens at their own places, which is right for a model that"
    " shifts them itself",
    "shifted by one": "each label is the token after its own place, which is right for a loss that"
    " is taken as it is, and wrong for a model that shifts labels itself",
    "shifted backwards": "each label is the token before its own place: the model learns to repeat"
    " what it has just read",
    "unrelated": "the labels are not the tokens, neither at their own places nor next to them",
}
_HEADINGS = columns(">sample", ">position", ">token", "text", ">label", "label text", "state")


def render_labels(answer: LabelsAnswer, *, width: int | None) -> str:
    """The whole batch in sentences, then samples as runs of ignored and trained labels."""
    room = width or _PIPE_WIDTH
    texts = {text.token: text.text for text in answer.texts}
    blocks = ["\n".join(_about(answer))]
    blocks += ["\n".join(_render_sample(sample, texts, room)) for sample in answer.shown]
    return "\n\n".join(blocks)


def render_label_table(answer: LabelsAnswer, *, width: int | None, color: bool) -> str:
    """Every token of the samples, one line each."""
    texts = {text.token: text.text for text in answer.texts}
    rows = [
        [
            str(sample.sample),
            str(place),
            None if token is None else str(token),
            _text(texts.get(token)) if token is not None else None,
            str(label),
            _text(texts.get(label)),
            "ignored" if label == IGNORED else "trained",
        ]
        for sample in answer.shown
        for place, (token, label) in enumerate(_side_by_side(sample))
    ]
    return render_table(_HEADINGS, rows, width=width, color=color)


def _about(answer: LabelsAnswer) -> Iterator[str]:
    """What is known of the whole batch, a sentence each."""
    step = "" if answer.step is None else f" at step {answer.step:,}"
    yield f"{escape_controls(answer.origin)}{step}: {plural(answer.samples, 'sample')}"
    yield f"  tokens  {escape_controls(answer.inputs)}"
    yield f"  labels  {escape_controls(answer.labels)}"
    total = answer.trained + answer.ignored
    of = f" of the first {plural(answer.read, 'sample')}" if answer.read < answer.samples else ""
    share = percent(answer.trained / total) if total else "none"
    yield (
        f"{answer.trained:,} of {total:,} labels{of} are trained on ({share}), {answer.ignored:,}"
        f" are ignored ({IGNORED})"
    )
    if answer.all_ignored:
        shown = ", ".join(map(str, answer.all_ignored[:_NAMED]))
        more = ", ..." if len(answer.all_ignored) > _NAMED else ""
        yield (
            f"{plural(len(answer.all_ignored), 'sample')} without any label that is trained on:"
            f" {shown}{more}; a batch of nothing else has the loss NaN"
        )
    if answer.shift is not None:
        shares = (
            ("the token at their own place", answer.same),
            ("the next one", answer.next),
            ("the previous one", answer.previous),
        )
        known = ((name, percent(value, digits=0)) for name, value in shares if value is not None)
        told = ", ".join(f"{share} {name}" for name, share in known)
        yield f"{_SHIFTS.get(answer.shift, escape_controls(answer.shift))} (of the labels {told})"
    elif answer.trained:
        yield "tokens and labels are of different sizes, so they are not compared"
    if answer.tokenizer is not None:
        yield f"texts by {escape_controls(answer.tokenizer)}"


def _render_sample(sample: LabelledSample, texts: Mapping[int, str], width: int) -> Iterator[str]:
    """One sample as runs of labels of one state."""
    trained = sum(label != IGNORED for label in sample.labels)
    cut = len(sample.labels) < sample.length
    of = f"the first {len(sample.labels):,} of {sample.length:,}" if cut else f"{sample.length:,}"
    yield f"sample {sample.sample}: {trained:,} of {of} labels are trained on"
    pairs = list(_side_by_side(sample))
    digits = len(str(max(len(pairs) - 1, 0)))
    for first, last, state in _runs(sample):
        head = f"  {first:>{digits}}-{last:<{digits}}  {state}"
        tokens = [_word(token, texts) for token, _ in pairs[first : last + 1]]
        yield _cut(f"{head}  tokens  {' '.join(tokens)}", width)
        if state == "trained":
            labels = [_word(label, texts) for _, label in pairs[first : last + 1]]
            yield _cut(f"{' ' * len(head)}  labels  {' '.join(labels)}", width)


def _runs(sample: LabelledSample) -> Iterator[tuple[int, int, str]]:
    """The first and last place of each run of labels of one state, and the state."""
    first = 0
    states = ["ignored" if label == IGNORED else "trained" for label in sample.labels]
    for place, state in enumerate(states):
        if place + 1 == len(states) or states[place + 1] != state:
            yield first, place, state
            first = place + 1


def _side_by_side(sample: LabelledSample) -> Iterator[tuple[int | None, int]]:
    """Each label with its token; None where there are fewer tokens."""
    for place, label in enumerate(sample.labels):
        yield (sample.tokens[place] if place < len(sample.tokens) else None), label


def _word(token: int | None, texts: Mapping[int, str]) -> str:
    """A token by its text, else by its number."""
    if token is None:
        return "-"
    text = texts.get(token)
    return str(token) if text is None else str(_text(text))


def _text(text: str | None) -> str | None:
    return None if text is None else escape_controls(text)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: max(width - 1, 1)]}…"
