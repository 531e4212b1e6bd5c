WITH told AS (
  SELECT step, name AS plot, 'number' AS unit, value FROM python.metrics
  WHERE name IN (SELECT name FROM python.metrics GROUP BY name ORDER BY min(seq) LIMIT 12)
  UNION ALL SELECT step, device || ' busy', 'share', busy FROM python.devices
  UNION ALL SELECT step, device || ' memory in use, by all programs', 'bytes', used_bytes FROM python.devices
  UNION ALL SELECT step, device || ' power', 'W', power_w FROM python.devices
  UNION ALL SELECT step, device || ' clock', 'MHz', sm_mhz FROM python.devices
  UNION ALL SELECT step, device || ' temperature', '°C', temperature_c FROM python.devices
), m AS (
  SELECT step, plot, unit, CASE WHEN isfinite(value) THEN value END AS value FROM told WHERE step IS NOT NULL AND value IS NOT NULL AND $range
), w AS (
  SELECT greatest(1, ceil((max(step) - min(step) + 1) / 400.0))::BIGINT AS width FROM m
)
SELECT plot, unit, step // width * width AS step, max(width) AS width, min(value) AS least, avg(value) AS mean, max(value) AS most
FROM m, w GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
