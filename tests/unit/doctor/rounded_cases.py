"""Changes of weights in half precision, by rates that it can tell and by those that it cannot."""

from __future__ import annotations

from typing import Any

from .records import Case, Make, after, gradients

_HALF = "bfloat16"


def _tuned(
    rate: float,
    *,
    size: float = 0.05,
    changed: float = 0.2,
    optimizer: str = "AdamW",
    dtypes: tuple[str, str] = (_HALF, _HALF),
    momentum: float | None = None,
    spread: float = 1.0,
    **columns: Any,
) -> Make:
    """Two matrices of ten thousand weights each.

    Args:
        size: The root mean square of the weights.
        changed: What part of the most that the optimizer can change was changed.
        spread: How many times the first group's rate the other one's is.
    """
    names = ("first.weight", "last.weight")
    parameters = [
        {"model": "model", "parameter": name, "dtype": dtype, "optimizers": 1}
        for name, dtype in zip(names, dtypes, strict=True)
    ]
    groups = [
        {"optimizer": optimizer, "name": "opt", "momentum": momentum, "lr": rate * times}
        for times in (1.0, spread)
    ]
    live = {"parameters": parameters, "optimizers": groups}
    own = {"numel": 10_000, "weight_norm": 100 * size, "update_ratio": changed * rate / size,
           "optimizer": optimizer, "step_lr": rate, "step_optimizer": optimizer}  # fmt: skip
    return gradients(200, live=live, **{**own, **columns})


ROUNDED = (
    Case("no-update", _tuned(2e-5), "likely", 0, "weights of first.weight are 0.05 (root mean"
         " square), where bfloat16 has steps of 0.00024; the optimizer moves them by 2e-5"),
    Case("no-update", _tuned(2e-5, optimizer="RMSprop", momentum=0.5), "likely"),
    Case("no-update", _tuned(2e-5, step_lr=after(100, 3e-3, 2e-5)), "likely", 100),  # tuned
    Case("no-update", _tuned(2e-6, dtypes=("float16", "float16")), "likely", None, "float16"),
    Case("no-update", _tuned(0.1, size=1.0, optimizer="SGD", norm=0.05, momentum=0.0,
         update_ratio=1e-5), "likely"),
    Case("no-update", _tuned(2e-5, step_lr=lambda s: 1e-3 * max(0.02, 1 - s / 150)), None),
    Case("no-update", _tuned(2e-5, step_lr=lambda s: 4.5e-5 * max(0.4, 1 - s / 150)), "possible",
         None, "as at the end of a schedule"),
    Case("no-update", _tuned(2e-5, step_lr=lambda s: 1e-7 * s), None),  # a warm-up
    Case("no-update", _tuned(1e-3), None),  # a rate that is large enough
    Case("no-update", _tuned(2e-5, spread=100.0), None),  # of which the other group has one
    Case("no-update", _tuned(2e-5, dtypes=("float32", "float32")), None),
    Case("no-update", _tuned(2e-5, dtypes=(_HALF, "float32"), numel=(1_000, 10_000)), None),
    Case("no-update", _tuned(2e-5, changed=2.0), None),  # the rest of each update is kept
    Case("no-update", _tuned(2e-5, optimizer="Adafactor"), None),  # of which that is not known
    Case("no-update", _tuned(2e-5, size=1e-3), None),  # small weights are told apart
    Case("no-update", _tuned(2e-5, numel=200, update_ratio=2e-6), None),  # few would move
    Case("no-update", _tuned(2e-5, optimizer="SGD", norm=0.01, momentum=0.0,
         update_ratio=(0.0, 1e-5)), None),  # as in most steps
)  # fmt: skip
"""Of which some that are healthy: rates that can be told, full weights, compensated updates."""
