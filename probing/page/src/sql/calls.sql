WITH c AS (
  SELECT module, class, stage, depth, thread_id, allocated_bytes, start_ns, duration, model FROM python.torch_trace WHERE step = $step
  UNION ALL SELECT 'data wait', 'DataLoader', 'data_wait', 0, thread_id, NULL, start_ns, duration, NULL FROM python.batches WHERE step = $step
)
SELECT module, class, stage, depth, thread_id, allocated_bytes,
  (start_ns - min(start_ns) OVER ()) / 1e9 AS at_s, duration AS took_s, model
FROM c ORDER BY start_ns
