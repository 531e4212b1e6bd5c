"""What travels about the labels of a batch."""

from __future__ import annotations

from ..frozen import InNotebooks, dataclass
from ..limits import TimeLimit


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsRequest:
    """The tokens and labels of the next batch that the training reads.

    Attributes:
        samples: How many samples to show token by token.
        timeout_s: How long to wait for a batch.
    """

    samples: int = 2
    timeout_s: TimeLimit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledSample:
    """One sample of a batch, cut at its end where it is long.

    Attributes:
        sample: Its place in the batch.
        length: How many labels it has in all.
        tokens: Token numbers.
        labels: Their labels; -100 where ignored.
    """

    sample: int
    length: int
    tokens: tuple[int, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenText:
    """What a tokenizer calls a token."""

    token: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsAnswer(InNotebooks):
    """Tokens and labels of one batch.

    Attributes:
        origin: Where they were read.
        inputs: Name, type and size of the tokens.
        labels: Name, type and size of the labels.
        step: The training step then, if one is counted.
        waited_s: How long the batch was waited for.
        samples: Samples in the batch.
        read: Samples that all that follows is about.
        trained: Labels that are trained on.
        ignored: Labels that are ignored.
        all_ignored: Samples without any label that is trained on.
        same: The share of trained labels that are the token at their own place.
        next: The share of those that are the token after it.
        previous: The share of those that are the token before it.
        shift: ``equal``, ``shifted by one``, ``shifted backwards`` or ``unrelated``.
        tokenizer: The class of the tokenizer that gave the texts.
        texts: Of the tokens and labels that are shown.
        shown: The samples that were asked for.
    """

    origin: str
    inputs: str
    labels: str
    step: int | None
    waited_s: float
    samples: int
    read: int
    trained: int
    ignored: int
    all_ignored: tuple[int, ...]
    same: float | None
    next: float | None
    previous: float | None
    shift: str | None
    tokenizer: str | None
    texts: tuple[TokenText, ...]
    shown: tuple[LabelledSample, ...]
