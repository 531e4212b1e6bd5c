"""The saved questions about the course of a training: its numbers, its parts, what was done to it.

Rules of this file: as those of `library`, which lists them.
"""

from __future__ import annotations

from ...plugins import Question

COURSE: tuple[Question, ...] = (
    Question(
        name="classes",
        doc="Which kinds of modules take most of a step?",
        sql="""
WITH last AS (SELECT rank, host, pid, step FROM python.steps WHERE duration IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY rank, host, pid ORDER BY seq DESC) <= $steps)
SELECT class, count(DISTINCT module) AS modules,
  round(sum(duration) FILTER (stage = 'forward') * 1e3 / (SELECT count(*) FROM last), 3)
    AS forward_ms,
  round(sum(duration) FILTER (stage = 'backward') * 1e3
    / count(DISTINCT concat_ws(' ', calls.rank, host, pid, step)) FILTER (stage = 'backward'), 3)
    AS backward_ms
FROM python.torch_trace calls JOIN last USING (host, pid, step)
WHERE stage IN ('forward', 'backward') AND duration IS NOT NULL
  AND calls.rank IS NOT DISTINCT FROM last.rank
GROUP BY class ORDER BY forward_ms DESC NULLS LAST
""",
        parameters={"steps": "20"},
    ),
    Question(
        name="accumulation",
        doc="How do the micro-batches of a step differ?",
        sql="""
SELECT micro_batch, count(*) AS times, round(avg(loss), 5) AS loss, round(avg(samples)) AS samples,
  round(median(duration) * 1e3, 2) AS ms, round(median(data_wait_s) * 1e3, 2) AS data_wait_ms,
  round(median(forward_s) * 1e3, 2) AS forward_ms,
  round(median(backward_s) * 1e3, 2) AS backward_ms
FROM (FROM python.micro_batches WHERE duration IS NOT NULL ORDER BY seq DESC LIMIT $count)
GROUP BY micro_batch ORDER BY micro_batch
""",
        parameters={"count": "1000"},
    ),
    Question(
        name="optimizers",
        doc="What does each optimizer do?",
        sql="""
SELECT optimizer, any_value(class) AS class, any_value(model) AS model, count(*) AS steps,
  max(step) AS last_step, arg_max(lr, seq) AS last_lr, arg_max(loss, seq) AS last_loss,
  arg_max(grad_norm, seq) AS last_grad_norm
FROM python.optimizer_steps GROUP BY optimizer ORDER BY steps DESC
""",
    ),
    Question(
        name="loss-spikes",
        doc="In which steps did the loss jump?",
        sql="""
SELECT step, loss, round(usual, 5) AS median_of_the_50_before, round(loss / usual, 2) AS times_it,
  grad_norm, lr
FROM (SELECT *, median(loss) OVER (
    PARTITION BY rank, host, pid ORDER BY step ROWS BETWEEN 50 PRECEDING AND 1 PRECEDING) AS usual
  FROM python.steps WHERE loss_finite)
WHERE usual > 0 AND loss > $factor * usual ORDER BY step DESC LIMIT 50
""",
        parameters={"factor": "1.5"},
    ),
    Question(
        name="skipped-steps",
        doc="When did a gradient scaler leave out steps, and what was its scale?",
        sql="""
SELECT step, skipped, amp_scale, loss, grad_norm FROM python.steps
WHERE skipped > 0 ORDER BY step DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="gradients",
        doc="Which parameters have the largest gradients, and how much do they change?",
        sql="""
SELECT parameter, model, max(step) AS step, arg_max(norm, step) AS norm,
  arg_max(weight_norm, step) AS weight_norm, arg_max(update_ratio, step) AS update_ratio
FROM python.gradients GROUP BY parameter, root, model ORDER BY norm DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="dead-gradients",
        doc="Which parameters have a gradient of zeros, or one that is not finite?",
        sql="""
SELECT parameter, model, count(*) AS times_looked_at, round(avg(zero_share), 4) AS mean_zero_share,
  sum(nan_count + inf_count) AS not_finite, max(step) AS last_step
FROM python.gradients GROUP BY parameter, root, model
HAVING avg(zero_share) > $share OR sum(nan_count + inf_count) > 0
ORDER BY mean_zero_share DESC
""",
        parameters={"share": "0.99"},
    ),
    Question(
        name="nan-origin",
        doc="Where did values become NaN or infinite first?",
        sql="""
SELECT step, module, class, stage, role, what, tensor, nan_count, inf_count, finite_max
FROM python.numerics ORDER BY step, seq LIMIT $count
""",
        parameters={"count": "20"},
    ),
    Question(
        name="metrics",
        doc="What does the script tell of itself?",
        sql="""
SELECT name, count(*) AS times, max(step) AS last_step, arg_max(value, seq) AS last,
  min(value) AS least, max(value) AS most
FROM python.metrics GROUP BY name ORDER BY name
""",
    ),
    Question(
        name="spans",
        doc="What do the spans of the script take?",
        sql="""
SELECT name, count(*) AS times, round(sum(duration), 3) AS s, round(avg(duration) * 1e3, 3) AS ms,
  round(max(duration) * 1e3, 3) AS longest_ms, count(*) FILTER (duration IS NULL) AS open
FROM python.spans GROUP BY name ORDER BY s DESC NULLS LAST
""",
    ),
    Question(
        name="interventions",
        doc="What was changed in it, or run in it, and when?",
        sql="""
SELECT make_timestamp_ns(start_ns) AS utc, step, 'action' AS kind,
  concat_ws(' ', name, arguments) AS what, state, changes AS came_of_it FROM python.actions
UNION ALL SELECT make_timestamp_ns(start_ns), step, 'eval', coalesce(code, code_sha256), state,
  error_type FROM python.evals
UNION ALL SELECT make_timestamp_ns(start_ns), NULL, 'setting', concat_ws(' ', name, arguments),
  state, error FROM probing.changes
ORDER BY utc DESC LIMIT $count
""",
        parameters={"count": "20"},
    ),
)
"""All of them."""
