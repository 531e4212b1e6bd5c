"""A loss that is given what it does not expect, such as probabilities where it wants logits.

Rules of this file: what the agent has seen in the graphs of a few losses is told; no figure of the
training says it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from .....messages.loss_inputs import SCORES, SIGMOID, SOFTMAX, LossInput, loss_input_in
from .....units import figure
from ...facts import Facts
from ...findings import Certainty, Rule, Sign
from .gradients import SAMPLING_S, notes_of_sampled

_CROSS, _BINARY = "cross_entropy", "binary_cross_entropy_with_logits"
_OWN_SOFTMAX = (
    "Give cross_entropy the logits: take the softmax out of the end of the model, or of what stands"
    " before the loss, and use it for predictions only."
)
_OWN_SIGMOID = (
    "Give binary_cross_entropy_with_logits the logits: take the {maker} out, or use"
    " binary_cross_entropy."
)
_LOGS = "Give {loss} log-probabilities: log_softmax(logits, dim=...) in place of {maker}."
_TAKES_LOGITS, _TAKES_LOGS = "it wants logits", "it wants log-probabilities"


class _Known(NamedTuple):
    """What is to be said of one loss and what it is given."""

    certainty: Certainty
    why: str
    fix: str


_UNBOUNDED = f"{_TAKES_LOGS}, and the loss of unbounded scores has no least value"
_LINEAR = f"{_TAKES_LOGS}; of probabilities it is linear, and no likelihood"
_KNOWN = {
    (_CROSS, SOFTMAX): _Known("certain", f"{_TAKES_LOGITS}, and applies another", _OWN_SOFTMAX),
    ("log_softmax", SOFTMAX): _Known("likely", _TAKES_LOGITS, _OWN_SOFTMAX),
    (_CROSS, SIGMOID): _Known("possible", f"{_TAKES_LOGITS} of any size", _OWN_SOFTMAX),
    (_BINARY, SIGMOID): _Known("certain", f"{_TAKES_LOGITS}, and applies another", _OWN_SIGMOID),
    (_BINARY, SOFTMAX): _Known("likely", _TAKES_LOGITS, _OWN_SIGMOID),
    ("nll_loss", SOFTMAX): _Known("likely", _LINEAR, _LOGS),
    ("nll_loss", SIGMOID): _Known("likely", _LINEAR, _LOGS),
    ("nll_loss", SCORES): _Known("likely", _UNBOUNDED, _LOGS),
    ("kl_div", SOFTMAX): _Known("likely", f"{_TAKES_LOGS}; this is no divergence", _LOGS),
    ("kl_div", SIGMOID): _Known("likely", f"{_TAKES_LOGS}; this is no divergence", _LOGS),
    ("kl_div", SCORES): _Known("possible", _UNBOUNDED, _LOGS),
}


def _loss_input(facts: Facts) -> Iterator[Sign]:
    """A function of a loss is given what it should not be."""
    found = loss_input_in(notes_of_sampled(facts))
    known = found and _KNOWN.get((found.loss, found.maker))
    if not found or not known:
        return
    yield Sign(
        certainty=known.certainty,
        summary=f"In the loss, {found.loss} is given the output of {found.maker}: {known.why}"
        f"{_least(found)}",
        evidence=(
            f"in the graph of the loss the input of {found.loss} comes from {found.maker}, and"
            " nothing that changes it stands between",
            *_newest(facts),
        ),
        weight=0.9 if known.certainty != "possible" else 0.4,
        fix=known.fix.format(loss=found.loss, maker=found.maker),
    )


def _least(found: LossInput) -> str:
    """Below what such a loss cannot fall."""
    if found.loss == _BINARY and found.maker == SIGMOID:
        return (
            f"; it cannot fall below {figure(math.log1p(math.exp(-1)), 2)} for a label of 1 and"
            f" {figure(math.log(2), 2)} for one of 0"
        )
    if found.maker != SOFTMAX or not found.classes or found.loss != _CROSS:
        return ""
    least = math.log(math.e + found.classes - 1) - 1
    return f"; with {found.classes} classes it cannot fall below {figure(least, 3)}"


def _newest(facts: Facts) -> tuple[str, ...]:
    """What the loss is."""
    losses = [row["loss"] for row in facts.steps.rows[-10:] if row["loss"] is not None]
    return (f"the loss of the newest step is {figure(losses[-1], 3)}",) if losses else ()


RULES = (
    Rule(
        name="loss-input",
        group="numbers",
        subject="loss function",
        symptom="The loss stays high though the predictions get better, or is below zero.",
        evidence=(
            "The graphs of the losses of three steps. Certain: `cross_entropy` of a softmax,"
            " `binary_cross_entropy_with_logits` of a sigmoid. Likely: the latter of a softmax,"
            " `nll_loss` of either or of a layer's scores, `log_softmax` of a softmax, `kl_div` of"
            " probabilities. Possible: `cross_entropy` of a sigmoid, `kl_div` of scores. Only"
            " views, selections and conversions may stand between. Compiled code and functions of"
            " the script's own show nothing."
        ),
        certainty="certain",
        gravity=70,
        fix=_OWN_SOFTMAX,
        source="https://pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        next="probing ENDPOINT gradients",
        look=_loss_input,
        cost_s=SAMPLING_S,
    ),
)
