WITH e AS (
  SELECT device, time_ns, step, coalesce(category, 'other') AS category,
    CASE action WHEN 'alloc' THEN bytes WHEN 'free_completed' THEN -bytes END AS change
  FROM python.alloc_events WHERE action IN ('alloc', 'free_completed')
), s AS (
  SELECT device, time_ns, step, sum(change) OVER (PARTITION BY device ORDER BY time_ns ROWS UNBOUNDED PRECEDING) AS in_use,
    row_number() OVER (PARTITION BY device ORDER BY time_ns) AS n, count(*) OVER (PARTITION BY device) AS number
  FROM e
)
SELECT device, (min(time_ns) - min(min(time_ns)) OVER ()) / 1e6 AS at_ms, min(step) AS step, max(in_use) AS in_use, any_value(number) AS events
FROM s GROUP BY device, n * 1500 // number ORDER BY 1, 2
