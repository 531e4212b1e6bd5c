"""What is told wrong of which training today, and what the product itself says of that.

`WRONG`: each entry must be wrong as long as it stands here: the tests fail when it becomes right,
so that it is taken out by who has mended it. Nothing is added for a thing that was right before.
What is wrong in some runs only says so, by its first words, and may be right in others.

`SAYS`: what cannot be right, because nothing in the process shows it, with the words by which
`probing PID status` says so to who asks. Such an answer counts as declined, and where the words are
missing as wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

SOMETIMES = frozenset({("a3c", "attach")})
"""What of `SAYS` is right in some runs: it goes by which thread is the first to make a step."""
WRONG: Mapping[str, Mapping[str, str]] = {}

_BEFORE_OPTIMIZER = r"\d+ calls of a model before the training included"
_NO_BACKWARD = r"each call of a model is a step, unless the script calls probing\.step\(\)"

SAYS: Mapping[str, Mapping[str, str]] = {
    "warmup_inference": {"steps": _BEFORE_OPTIMIZER},
    "style_transfer": {"steps": _BEFORE_OPTIMIZER},
    "a3c": {"attach": r"steps, losses and phases are those of thread"},
    "mezo": {"steps": _NO_BACKWARD, "loss": _NO_BACKWARD, "attach": _NO_BACKWARD},
}
