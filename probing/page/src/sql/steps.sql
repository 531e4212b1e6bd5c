WITH s AS (
  SELECT step, data_wait_s, to_device_s, forward_s, loss_s, backward_s, gradient_sync_s, gradients_s, optimizer_s, other_s,
    loss, loss_finite, duration, grad_norm, allocated_bytes, tokens_per_s
  FROM python.steps WHERE duration IS NOT NULL AND $range
), w AS (
  SELECT greatest(1, ceil((max(step) - min(step) + 1) / 800.0))::BIGINT AS width FROM s
)
SELECT step // width * width AS step, any_value(width) AS width, max(step) AS last_step, count(*) AS steps,
  min(CASE WHEN isfinite(loss) THEN loss END) AS min_loss, avg(CASE WHEN isfinite(loss) THEN loss END) AS avg_loss, max(CASE WHEN isfinite(loss) THEN loss END) AS max_loss,
  min(duration) AS min_duration, avg(duration) AS avg_duration, max(duration) AS max_duration,
  min(CASE WHEN isfinite(grad_norm) THEN grad_norm END) AS min_grad_norm, avg(CASE WHEN isfinite(grad_norm) THEN grad_norm END) AS avg_grad_norm, max(CASE WHEN isfinite(grad_norm) THEN grad_norm END) AS max_grad_norm,
  min(allocated_bytes) AS min_allocated_bytes, avg(allocated_bytes) AS avg_allocated_bytes, max(allocated_bytes) AS max_allocated_bytes,
  avg(coalesce(data_wait_s, 0)) AS data_wait_s,
  avg(coalesce(to_device_s, 0)) AS to_device_s,
  avg(coalesce(forward_s, 0)) AS forward_s,
  avg(coalesce(loss_s, 0)) AS loss_s,
  avg(coalesce(backward_s, 0)) AS backward_s,
  avg(coalesce(gradient_sync_s, 0)) AS gradient_sync_s,
  avg(coalesce(gradients_s, 0)) AS gradients_s,
  avg(coalesce(optimizer_s, 0)) AS optimizer_s,
  avg(coalesce(other_s, 0)) AS other_s,
  avg(tokens_per_s) AS tokens_per_s,
  count(*) FILTER (NOT loss_finite) AS not_finite
FROM s, w GROUP BY 1 ORDER BY 1
