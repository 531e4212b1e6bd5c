WITH m AS (
  SELECT step, device, phase, coalesce(allocated_bytes, resident_bytes) AS bytes, peak_bytes, reserved_bytes
  FROM python.memory WHERE phase NOT IN ('attach', 'mark')
), w AS (
  SELECT greatest(1, ceil((max(step) - min(step) + 1) / 400.0))::BIGINT AS width FROM m
)
SELECT device, step // width * width AS step, max(width) AS width,
  max(bytes) FILTER (phase = 'before_forward') AS before_forward,
  max(bytes) FILTER (phase = 'after_forward') AS after_forward,
  max(bytes) FILTER (phase = 'after_backward') AS after_backward,
  max(bytes) FILTER (phase = 'after_step') AS after_step,
  max(peak_bytes) AS peak, max(reserved_bytes) AS reserved
FROM m, w GROUP BY 1, 2 ORDER BY 1, 2
