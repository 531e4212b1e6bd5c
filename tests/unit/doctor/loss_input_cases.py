"""What an agent has seen in the graph of a loss, and what it has said of other things."""

from __future__ import annotations

from probing.messages.loss_inputs import SCORES, SIGMOID, SOFTMAX, LossInput

from .records import Case, Make, gradients

_CROSS, _BINARY = "cross_entropy", "binary_cross_entropy_with_logits"


def _seen(loss: str, maker: str, classes: int | None = None) -> Make:
    """A training whose loss is given that."""
    return gradients(notes=("1 gradient was left out", LossInput(loss, maker, classes).sentence()))


GIVEN = (
    Case("loss-input", _seen(_CROSS, SOFTMAX, 14), "certain", None,
         "cross_entropy is given the output of softmax: it wants logits, and applies another; with"
         " 14 classes it cannot fall below 1.75"),
    Case("loss-input", _seen(_CROSS, SOFTMAX), "certain", None, "and applies another ('"),
    Case("loss-input", _seen(_BINARY, SIGMOID), "certain", None, "below 0.31 for a label of 1"),
    Case("loss-input", _seen("log_softmax", SOFTMAX, 3), "likely"),
    Case("loss-input", _seen(_BINARY, SOFTMAX), "likely"),
    Case("loss-input", _seen("nll_loss", SOFTMAX), "likely", None, "no likelihood"),
    Case("loss-input", _seen("nll_loss", SCORES), "likely", None, "no least value"),
    Case("loss-input", _seen("kl_div", SOFTMAX), "likely", None, "this is no divergence"),
    Case("loss-input", _seen("kl_div", SCORES), "possible"),
    Case("loss-input", _seen(_CROSS, SIGMOID, 14), "possible"),
    Case("loss-input", _seen("ctc_loss", SOFTMAX), None),  # of an agent that knows more
    Case("loss-input", gradients(notes=("the loss compares each prediction with each target:"
         " [8, 1] is broadcast to [8, 8]",)), None),
    Case("loss-input", gradients(), None),
)  # fmt: skip
