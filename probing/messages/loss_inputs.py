"""What an agent tells of a loss that gets what it does not expect, such as probabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

SOFTMAX, SIGMOID, SCORES = "softmax", "sigmoid", "a linear layer or convolution"
"""What has made what a loss is given."""
_NOTE = "{loss} is given the output of {maker}"
_CLASSES = ", of {classes} classes"
_SENTENCE = re.compile(
    rf"(?P<loss>\w+) is given the output of (?P<maker>{SOFTMAX}|{SIGMOID}|{SCORES})"
    r"(, of (?P<classes>\d+) classes)?"
)


class LossInput(NamedTuple):
    """A loss and what it is given.

    Attributes:
        loss: Its function in torch.
        maker: What made it, one of the above.
        classes: How many there are, where that is known.
    """

    loss: str
    maker: str
    classes: int | None = None

    def sentence(self) -> str:
        """What the agent says of it."""
        more = "" if self.classes is None else _CLASSES.format(classes=self.classes)
        return _NOTE.format(loss=self.loss, maker=self.maker) + more


def loss_input_in(notes: Iterable[str]) -> LossInput | None:
    """The first that some sentences tell of; None where none does."""
    found = next(filter(None, map(_SENTENCE.fullmatch, notes)), None)
    if found is None:
        return None
    classes = None if found["classes"] is None else int(found["classes"])
    return LossInput(found["loss"], found["maker"], classes)
