SELECT module, class, stage, depth, thread_id, allocated_bytes,
  (start_ns - min(start_ns) OVER ()) / 1e9 AS at_s, duration AS took_s
FROM python.torch_trace WHERE step = $step ORDER BY start_ns
