"""Predictions of what fits, each checked against what was measured once.

Rules of this file: who asks the process, and what is shown meanwhile, is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...messages.about.fit import FitAnswer, FitRequest, LargestFit, find_largest, with_missing

Predict = Callable[["FitRequest"], "FitAnswer"]


def checking(simulate: Predict, check: Callable[[FitAnswer], FitAnswer] | None) -> Predict:
    """What predicts by simulations, the first of which is held against a real step.

    Args:
        check: Puts beside a prediction what a step really takes; None for no check.
    """
    measured: list[FitAnswer] = []

    def predict(request: FitRequest) -> FitAnswer:
        answer = simulate(request)
        if check is None:
            return answer
        if not measured:
            measured.append(check(answer))
        first = measured[0]
        return with_missing(replace(answer, measured_bytes=first.measured_bytes, notes=first.notes))

    return predict


def largest_of(
    predict: Predict, request: FitRequest, *, memory: int | None, margin: float
) -> LargestFit:
    """The largest batch that fits.

    Raises:
        FitRefused: Not even one sample fits, or the limit is not known.
    """

    def try_batch(size: int | None) -> FitAnswer:
        return predict(replace(request, batch=size))

    return find_largest(try_batch, memory=memory, margin=margin)
