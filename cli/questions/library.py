"""The saved questions.

Rules of this file: one record each; it reads recorded tables alone, so that it works in every state
of a process and holds no training. Times are in milliseconds, and names say the unit.
"""

from __future__ import annotations

from ...errors import UsageError
from ...plugins import Question, installed
from ...tables import STEP_PHASES
from .course import COURSE
from .resources import RESOURCES

_OF_ONE = "0 AS rank, '' AS host, 0 AS pid"
_OF_MANY = "coalesce(rank, -1) AS rank, host, pid"
_OWN_TIMES = """
    WITH ended AS (
        SELECT {who}, seq, step, duration FROM python.steps WHERE duration IS NOT NULL
    ), last AS (
        FROM ended
        QUALIFY row_number() OVER (PARTITION BY rank, host, pid ORDER BY seq DESC) <= $steps
    ), stretches AS (
        SELECT rank, host, pid, min(step) AS first, max(step) AS final FROM last
        GROUP BY rank, host, pid
    ), forwards AS (
        SELECT {who}, seq, step, thread_id, module, class, root,
          regexp_replace(model, ' [0-9]+$', '') AS model, depth, start_ns, duration_ns
        FROM python.torch_trace WHERE stage = 'forward' AND duration_ns IS NOT NULL
    ), evaluations AS (
        SELECT {who}, start_ns, start_ns + coalesce(duration_ns, 9e18::BIGINT) AS end_ns
        FROM python.evaluations
    ), calls AS (
        SELECT f.* FROM forwards f JOIN stretches s USING (rank, host, pid)
        WHERE f.step BETWEEN s.first AND s.final
          AND NOT EXISTS (FROM evaluations e WHERE e.rank = f.rank AND e.host = f.host
            AND e.pid = f.pid AND f.start_ns BETWEEN e.start_ns AND e.end_ns)
    ), inner_calls AS (
        SELECT p.rank, p.host, p.pid, p.seq, sum(c.duration_ns) AS inner_ns
        FROM calls c ASOF JOIN calls p
          ON c.rank = p.rank AND c.host = p.host AND c.pid = p.pid
          AND c.thread_id = p.thread_id AND c.depth = p.depth + 1 AND c.start_ns >= p.start_ns
        GROUP BY p.rank, p.host, p.pid, p.seq
    )
    SELECT module, any_value(class) AS class, model,
      count(*) OVER (PARTITION BY module) AS models, count(*) AS calls,
      sum(duration_ns - coalesce(inner_ns, 0)) / 1e9 / (SELECT count(*) FROM last) AS own_s,
      sum(duration_ns - coalesce(inner_ns, 0)) / 1e9 / (SELECT sum(duration) FROM last) AS share
    FROM calls LEFT JOIN inner_calls USING (rank, host, pid, seq)
    GROUP BY module, root, model ORDER BY own_s DESC
"""
OWN_TIMES = _OWN_TIMES.format(who=_OF_ONE)
"""What each module's own code takes of a step, without the modules that it calls: forwards, by the
host's clock, over the last steps that have ended; its share of them; and how many models have a
module of that name. Models that are made anew and so get a number (`loss 2`) count as one."""

_LAST = """(FROM python.steps WHERE duration IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY rank, host, pid ORDER BY seq DESC) <= $steps)"""

_SUMS = " UNION ALL ".join(
    f"SELECT '{phase.replace('_', ' ')}' AS phase, sum({phase}_s) AS s FROM last"  # noqa: S608
    for phase in (*STEP_PHASES, "gradient_sync")
)

QUESTIONS: tuple[Question, ...] = (
    Question(
        name="slowest-modules",
        doc="Which modules' own code takes most of a step, forwards?",
        sql=f"""
SELECT module, class, model, calls, round(own_s * 1e3, 3) AS own_ms,
  round(100 * share, 1) AS percent_of_step
FROM ({_OWN_TIMES.format(who=_OF_MANY)})
""",  # noqa: S608 - our own words are all that is put in
        parameters={"steps": "20"},
    ),
    Question(
        name="slowest-calls",
        doc="Which single calls took longest?",
        sql="""
SELECT step, module, class, stage, round(duration * 1e3, 3) AS ms FROM python.torch_trace
WHERE stage IN ('forward', 'backward') AND duration IS NOT NULL AND depth > 0
ORDER BY duration DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="phases",
        doc="What is a step spent on?",
        sql=f"""
WITH last AS {_LAST}, sums AS ({_SUMS})
SELECT phase, round(s / (SELECT count(*) FROM last) * 1e3, 3) AS ms,
  round(100 * s / (SELECT sum(duration) FROM last), 2) AS percent
FROM sums WHERE s > 0 ORDER BY s DESC
""",  # noqa: S608 - our own words are all that is put in
        parameters={"steps": "100"},
    ),
    Question(
        name="last-steps",
        doc="How were the last steps?",
        sql="""
SELECT step, rank, round(duration * 1e3, 1) AS ms, loss, grad_norm, lr,
  round(tokens_per_s) AS tokens_per_s
FROM python.steps WHERE duration IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY rank, host, pid ORDER BY seq DESC) <= $count
ORDER BY seq DESC, rank
""",
        parameters={"count": "20"},
    ),
    Question(
        name="slow-steps",
        doc="Which steps took much longer than usual, and where?",
        sql="""
WITH ended AS (FROM python.steps WHERE duration IS NOT NULL),
  usual AS (SELECT median(duration) AS s FROM ended)
SELECT step, round(duration * 1e3, 1) AS ms, round(duration / usual.s, 1) AS times_the_median,
  round(data_wait_s * 1e3, 1) AS data_wait_ms, round(forward_s * 1e3, 1) AS forward_ms,
  round(backward_s * 1e3, 1) AS backward_ms, round(other_s * 1e3, 1) AS other_ms,
  involuntary_switches, round(gc_s * 1e3, 1) AS gc_ms
FROM ended, usual WHERE duration > $factor * usual.s ORDER BY duration DESC
""",
        parameters={"factor": "2"},
    ),
    Question(
        name="since-when",
        doc="Has it become slower, since when, and in which phase?",
        sql="""
SELECT min(step) AS from_step, max(step) AS to_step, round(median(duration) * 1e3, 1) AS ms,
  round(median(data_wait_s) * 1e3, 1) AS data_wait_ms,
  round(median(forward_s) * 1e3, 1) AS forward_ms,
  round(median(backward_s) * 1e3, 1) AS backward_ms,
  round(median(optimizer_s) * 1e3, 1) AS optimizer_ms, round(median(other_s) * 1e3, 1) AS other_ms
FROM (SELECT *, ntile($parts) OVER (ORDER BY step) AS part FROM python.steps
  WHERE duration IS NOT NULL)
GROUP BY part ORDER BY from_step
""",
        parameters={"parts": "10"},
    ),
    Question(
        name="loss",
        doc="How has the loss gone?",
        sql="""
SELECT min(step) AS from_step, max(step) AS to_step, round(avg(loss), 5) AS mean,
  round(min(loss), 5) AS lowest, round(max(loss), 5) AS highest,
  count(*) FILTER (loss_finite = false) AS not_finite
FROM (SELECT *, ntile($parts) OVER (ORDER BY step) AS part FROM python.steps WHERE loss IS NOT NULL)
GROUP BY part ORDER BY from_step
""",
        parameters={"parts": "20"},
    ),
    Question(
        name="not-finite",
        doc="In which steps was the loss or the gradient's norm NaN or infinite?",
        sql="""
WITH lost AS (SELECT host, pid, step, arg_min(loss, seq) AS loss, count(*) AS bad_micro_batches
  FROM python.micro_batches WHERE NOT isfinite(loss) GROUP BY host, pid, step)
SELECT step, coalesce(s.loss, lost.loss) AS loss, grad_norm, amp_scale, skipped, bad_micro_batches
FROM python.steps s LEFT JOIN lost USING (host, pid, step)
WHERE loss_finite = false OR NOT isfinite(grad_norm)
  OR (duration IS NULL AND bad_micro_batches > 0) ORDER BY step LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="gradient-norms",
        doc="In which steps were the gradients largest?",
        sql="""
SELECT step, grad_norm, clipped_norm, loss,
  round(grad_norm / (SELECT median(grad_norm) FROM python.steps), 1) AS times_the_median
FROM python.steps WHERE grad_norm IS NOT NULL ORDER BY grad_norm DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="learning-rate",
        doc="When did the learning rate change, and from what to what?",
        sql="""
SELECT step, before AS rate_before, lr AS rate_after FROM (
  SELECT step, lr, lag(lr) OVER (ORDER BY step) AS before FROM python.steps WHERE lr IS NOT NULL)
WHERE before IS NOT NULL AND lr <> before ORDER BY step DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="data-waits",
        doc="Which batches were waited for longest?",
        sql="""
SELECT step, loader, round(duration * 1e3, 2) AS ms FROM python.batches
WHERE duration IS NOT NULL ORDER BY duration DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="inside",
        doc="Which calls have not returned: where is it, or where did it end?",
        sql="""
SELECT step, stage, module, class, depth,
  round(((SELECT max(start_ns) FROM python.torch_trace) - start_ns) / 1e9, 3) AS s_before_the_last
FROM python.torch_trace WHERE duration IS NULL ORDER BY thread_id, depth
""",
    ),
    Question(
        name="throughput",
        doc="How much was done in each minute?",
        sql="""
SELECT strftime(make_timestamp_ns(start_ns), '%Y-%m-%d %H:%M') AS utc_minute, count(*) AS steps,
  sum(samples) AS samples, sum(tokens) AS tokens, round(sum(duration), 1) AS s_in_steps
FROM python.steps WHERE duration IS NOT NULL GROUP BY utc_minute
ORDER BY utc_minute DESC LIMIT $count
""",
        parameters={"count": "30"},
    ),
    Question(
        name="memory",
        doc="How has memory grown?",
        sql="""
SELECT min(step) AS from_step, max(step) AS to_step,
  round(max(resident_bytes) / 1048576, 1) AS resident_mib,
  round(max(allocated_bytes) / 1048576, 1) AS allocated_mib,
  round(max(peak_bytes) / 1048576, 1) AS peak_mib
FROM (SELECT *, ntile($parts) OVER (ORDER BY seq) AS part FROM python.memory)
GROUP BY part ORDER BY from_step
""",
        parameters={"parts": "20"},
    ),
    Question(
        name="evaluations",
        doc="How long did evaluations take, and how often were they?",
        sql="""
SELECT step, model, calls, samples, round(duration, 3) AS s, round(data_wait_s, 3) AS data_wait_s
FROM python.evaluations ORDER BY step DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="checkpoints",
        doc="How long did checkpoints take, and who wrote them?",
        sql="""
SELECT step, caller, round(duration, 3) AS s FROM python.checkpoints
ORDER BY start_ns DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="collectives",
        doc="Which collectives were waited for longest?",
        sql="""
SELECT step, op, bytes, round(wait_ns / 1e6, 3) AS waited_ms, round(duration * 1e3, 3) AS ms, caller
FROM python.collectives ORDER BY wait_ns DESC NULLS LAST LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="cost",
        doc="What does recording cost in a step?",
        sql="""
SELECT count(*) AS steps_looked_at, round(median(cost_s) * 1e6, 1) AS us_per_step,
  round(100 * median(share), 3) AS percent_of_step
FROM (FROM probing.overhead WHERE duration IS NOT NULL ORDER BY step DESC LIMIT $steps)
""",
        parameters={"steps": "100"},
    ),
    *COURSE,
    *RESOURCES,
)
"""All of them, the commonest first."""

BY_NAME = {question.name: question for question in QUESTIONS}


def all_questions() -> tuple[Question, ...]:
    """Ours, and those of plugins by names that we have not."""
    added = (
        one for each in installed() for one in each.plugin.questions if one.name not in BY_NAME
    )
    return tuple({question.name: question for question in (*QUESTIONS, *added)}.values())


def find_question(name: str) -> Question:
    """The saved question of that name.

    Raises:
        UsageError: There is none.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    known = {question.name: question for question in all_questions()}
    if name in known:
        return known[name]
    from ...sql.nearest import nearest

    near = nearest(name, known, cutoff=0.5)
    hint = f" Did you mean @{near}?" if near else ""
    raise UsageError(
        f"there is no saved question @{name}.{hint}", help="`probing query @` lists them."
    )
