"""One parameter for which the optimizer takes most of each step, as a large table has.

Rules of this file: one look at the parameters, and none at modules: what a parameter is of is told
by its name alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...facts import Facts, percent
from ...findings import Rule, Sign

_LEAST_SHARE = 0.4
"""Of a step; an Adam over dense layers that are used in every sample takes a tenth or less."""
_LEAST_PART = 0.8
"""Of all that is trained."""
_LARGE_BYTES = 4 << 20
"""Less is in the caches, and takes no time worth a word."""


def _one_parameter(facts: Facts) -> Iterator[Sign]:
    """Most of what the optimizer goes through is one parameter with a dense gradient."""
    share = facts.now().shares()["optimizer"]
    if share < _LEAST_SHARE:
        return
    rows = [
        r for r in facts.live("parameters") if r["trainable"] and r["optimizers"] and r["bytes"]
    ]
    largest = max(rows, key=lambda row: row["bytes"], default=None)
    if largest is None or largest["bytes"] < _LARGE_BYTES:
        return
    part = largest["bytes"] / sum(row["bytes"] for row in rows)
    if part < _LEAST_PART:
        return
    yield Sign(
        certainty="possible",
        summary=f"The optimizer takes {percent(share)} of each step, and {percent(part)} of what it"
        f" goes through is {largest['parameter']}: all of it in each step, whatever a batch uses",
        evidence=(
            f"it has {largest['numel']:,} elements of the"
            f" {sum(row['numel'] for row in rows):,} that are trained",
        ),
        weight=share,
    )


RULES = (
    Rule(
        name="one-parameter",
        group="slow",
        subject="set-up",
        symptom="Steps are slow for so few modules, and a larger batch takes hardly longer.",
        evidence=f"`optimizer_s` of python.steps is {percent(_LEAST_SHARE)} of the time, and one"
        f" trained parameter of python.parameters has {percent(_LEAST_PART)} of the bytes, 4 MiB or"
        " more.",
        certainty="possible",
        gravity=34,
        fix="If it is an embedding of which a batch uses few rows, make it with sparse=True and"
        " step it with torch.optim.SparseAdam or SGD; else have the optimizer fused=True, or step"
        " after several micro-batches.",
        source="https://pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
        next='probing ENDPOINT query "SELECT parameter, numel, bytes FROM python.parameters'
        ' ORDER BY bytes DESC LIMIT 10"',
        look=_one_parameter,
    ),
)
