"""Why all ranks have one loss though they need not have the same data.

Rules of this file: pure functions of a rank's own record. Only collectives of more than a few
numbers count, but beside an exchange within the model: metrics are averaged anywhere.
"""

from __future__ import annotations

from ..facts import Facts

_MOST_STEPS = 0.5
_REDUCED_IN_FORWARD = (
    "SELECT count(DISTINCT c.step) AS steps FROM python.collectives c JOIN python.torch_trace t"
    " ON c.step = t.step AND c.start_ns BETWEEN t.start_ns AND t.start_ns + t.duration_ns"
    " WHERE c.op = 'all_reduce' AND c.bytes > 1024 AND t.depth = 0 AND t.stage = 'forward'"
)
"""Gradients are reduced in the backward pass; metrics, in the forward of a wrapper, are small."""
_SHARED_BEFORE_BACKWARD = (
    "WITH passes AS ("
    "  SELECT step, stage, class, start_ns, start_ns + duration_ns AS end_ns,"
    "   lag(class) OVER own AS class_before, lag(stage) OVER own AS before,"
    "   lead(stage) OVER own AS after"
    "  FROM python.torch_trace WHERE depth = 0 AND stage IN ('forward', 'backward')"
    "   AND recomputed IS NOT TRUE AND duration_ns IS NOT NULL"
    "  WINDOW own AS (PARTITION BY step ORDER BY start_ns))"
    " SELECT count(DISTINCT c.step) AS steps, count(DISTINCT c.step) FILTER ("
    "   c.op IN ('all_gather', 'all_reduce') AND c.bytes > 1024"
    "   AND p.stage = 'forward' AND p.after = 'backward' AND (c.start_ns >= p.end_ns"
    "    OR (c.op = 'all_gather' AND p.before = 'forward' AND p.class <> p.class_before))"
    "  ) AS shared,"
    "  count(DISTINCT c.step) FILTER (c.op IN ('send', 'recv', 'all_to_all')"
    "   AND p.stage = 'forward' AND c.start_ns < p.end_ns) AS exchanged,"
    "  count(DISTINCT c.step) FILTER (c.op = 'all_reduce' AND p.stage = 'forward'"
    "   AND p.after = 'backward' AND c.start_ns >= p.end_ns) AS summed"
    " FROM python.collectives c ASOF JOIN passes p ON c.step = p.step AND c.start_ns >= p.start_ns"
)
"""Between the model and the backward pass, or in a loss that is a module: such a one is called
last, and is none that gathers its own parameters (FSDP) or statistics. Where ranks exchange parts
of a sample within the model, what they sum behind it is their loss, however few numbers it has."""


def why_one_loss(facts: Facts) -> str | None:
    """Why the loss of a rank is that of all of them; None where it is its own."""
    if facts.rows(_REDUCED_IN_FORWARD)[0]["steps"]:
        return "the ranks compute each batch together, as tensor parallelism does"
    (found,) = facts.rows(_SHARED_BEFORE_BACKWARD)
    least = max(1.0, _MOST_STEPS * found["steps"])
    if found["shared"] >= least:
        return "the ranks gather their batches for one loss, as contrastive training does"
    if min(found["exchanged"], found["summed"]) >= least:
        return (
            "the ranks exchange what the model computes, and sum their losses: they may have parts"
            " of each sample, as in context parallelism"
        )
    return None
