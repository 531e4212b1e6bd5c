WITH w AS (
  SELECT greatest(1, ceil((max(step) - min(step) + 1) / 800.0))::BIGINT AS width
  FROM python.steps WHERE duration IS NOT NULL AND $range
)
SELECT step // width * width AS step, max(width) AS width, min(step) AS first_step, max(step) AS last_step, count(*) AS steps,
  min(loss) AS min_loss, avg(loss) AS avg_loss, max(loss) AS max_loss,
  min(duration) AS min_duration, avg(duration) AS avg_duration, max(duration) AS max_duration,
  min(grad_norm) AS min_grad_norm, avg(grad_norm) AS avg_grad_norm, max(grad_norm) AS max_grad_norm,
  min(allocated_bytes) AS min_allocated_bytes, avg(allocated_bytes) AS avg_allocated_bytes, max(allocated_bytes) AS max_allocated_bytes,
  coalesce(sum(data_wait_s), 0) / count(*) AS data_wait_s,
  coalesce(sum(to_device_s), 0) / count(*) AS to_device_s,
  coalesce(sum(forward_s), 0) / count(*) AS forward_s,
  coalesce(sum(loss_s), 0) / count(*) AS loss_s,
  coalesce(sum(backward_s), 0) / count(*) AS backward_s,
  coalesce(sum(gradient_sync_s), 0) / count(*) AS gradient_sync_s,
  coalesce(sum(gradients_s), 0) / count(*) AS gradients_s,
  coalesce(sum(optimizer_s), 0) / count(*) AS optimizer_s,
  coalesce(sum(other_s), 0) / count(*) AS other_s,
  avg(tokens_per_s) AS avg_tokens_per_s, min(tokens_per_s) AS min_tokens_per_s, max(tokens_per_s) AS max_tokens_per_s,
  avg(samples_per_s) AS avg_samples_per_s, min(samples_per_s) AS min_samples_per_s, max(samples_per_s) AS max_samples_per_s,
  avg(lr) AS avg_lr, min(lr) AS min_lr, max(lr) AS max_lr, min(mfu) AS min_mfu, avg(mfu) AS avg_mfu, max(mfu) AS max_mfu,
  count(*) FILTER (NOT loss_finite) AS not_finite
FROM (
  SELECT step, duration, data_wait_s, to_device_s, forward_s, loss_s, backward_s, gradient_sync_s, gradients_s, optimizer_s, other_s,
    CASE WHEN isfinite(loss) THEN loss END AS loss, loss_finite, CASE WHEN isfinite(grad_norm) THEN grad_norm END AS grad_norm,
    allocated_bytes, tokens_per_s, samples / nullif(duration, 0) AS samples_per_s, lr, mfu
  FROM python.steps WHERE duration IS NOT NULL AND $range
), w GROUP BY 1 ORDER BY 1
