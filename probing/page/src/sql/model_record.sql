WITH calls AS (
  SELECT model, root, module, class, min(start_ns) AS first_ns, min(depth) FILTER (stage = 'forward' AND NOT recomputed) AS depth,
    count(*) FILTER (stage = 'forward') / count(DISTINCT step) AS calls,
    sum(duration) FILTER (stage = 'forward') / count(DISTINCT step) AS forward_s,
    sum(duration) FILTER (stage = 'backward') / count(DISTINCT step) AS backward_s
  FROM python.torch_trace
  WHERE duration IS NOT NULL AND stage IN ('forward', 'backward')
    AND step > (SELECT max(step) - 50 FROM python.torch_trace)
  GROUP BY model, root, module, class
), newest AS (
  SELECT model, root, parameter, max(step) AS gradient_step, arg_max(norm, step) AS norm,
    arg_max(update_ratio * weight_norm, step) FILTER (update_ratio IS NOT NULL) AS change
  FROM python.gradients GROUP BY model, root, parameter
), gradients AS (
  SELECT model, root, CASE WHEN contains(parameter, '.') THEN regexp_replace(parameter, '\.[^.]*$', '') ELSE root END AS module,
    max(gradient_step) AS gradient_step, sqrt(sum(norm * norm)) AS gradient_norm, sqrt(sum(change * change)) AS update_norm
  FROM newest GROUP BY 1, 2, 3
), same AS (  -- a wrapper of a model has the name of its own class, one inside it that of what it wraps
  SELECT *, min(first_ns) OVER (PARTITION BY model, root, CASE WHEN module = class THEN root ELSE module END) AS begin_ns FROM calls
)
SELECT model, root, module, class, calls, forward_s, backward_s, NULL AS gradient_norm, NULL AS update_norm, NULL AS gradient_step, begin_ns, depth FROM same
UNION ALL
SELECT model, root, module, NULL, NULL, NULL, NULL, gradient_norm, update_norm, gradient_step, NULL, NULL FROM gradients
ORDER BY begin_ns, depth
