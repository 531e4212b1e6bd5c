"""What is told wrong of which training today, and what is wrong about it.

Each entry must be wrong as long as it stands here: the tests fail when it becomes right, so that it
is taken out by who has mended it. Nothing is added for a thing that was right before. What is wrong
in some runs only says so, by its first words, and may be right in others.
"""

from __future__ import annotations

from collections.abc import Mapping

WRONG: Mapping[str, Mapping[str, str]] = {
    "warmup_inference": {
        "steps": "Before an optimizer is made, a call is a step of inference; status counts them.",
    },
    "style_transfer": {
        "steps": "The same.",
    },
    "mezo": {
        "steps": "Without backward passes nothing shows a step; status says so, and what helps.",
        "loss": "Without a backward pass no loss is known.",
        "attach": "As steps.",
        "fit": "Without backward passes no step is seen, which is said when the time is up.",
    },
}
