"""The phases of a step as sentences name them."""

from __future__ import annotations

PHASE_WORDS = {
    "data_wait": "the wait for data",
    "to_device": "the way of the batch to the model",
    "forward": "the forward pass",
    "loss": "the loss",
    "backward": "the backward pass",
    "gradient_sync": "the wait for other ranks",
    "gradients": "what is done with the gradients",
    "optimizer": "the optimizer",
    "other": "other code of the script",
}
