"""What is told wrong of which training today, and what is wrong about it.

Each entry must be wrong as long as it stands here: the tests fail when it becomes right, so that it
is taken out by who has mended it. Nothing is added for a thing that was right before. What is wrong
in some runs only says so, by its first words, and may be right in others.
"""

from __future__ import annotations

from collections.abc import Mapping

WRONG: Mapping[str, Mapping[str, str]] = {
    "optimizer_in_backward": {
        "fit": "All gradients are taken to be there at once; fit shows what was measured, too.",
    },
    "warmup_inference": {
        "steps": "Before an optimizer is made, a call is a step of inference; status counts them.",
    },
    "style_transfer": {
        "steps": "The same.",
    },
    "grad_cache": {
        "loss": "The mean of the loss and of surrogates of later passes; first_loss is the loss.",
        "phases": "What is called without gradients, again and again, counts as evaluation.",
        "attach": "As loss.",
    },
    "mezo": {
        "steps": "Without backward passes nothing shows a step; status says so, and what helps.",
        "loss": "Without a backward pass no loss is known.",
        "attach": "As steps.",
        "fit": "Without backward passes no step is seen, which is said when the time is up.",
    },
}
