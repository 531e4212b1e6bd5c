WITH marks AS (
  SELECT step, 'evaluation' AS kind, concat_ws(', ', model, calls || ' calls', round(duration, 3) || ' s') AS what FROM python.evaluations
  UNION ALL SELECT step, 'checkpoint', concat_ws(', ', path, round(duration, 3) || ' s') FROM python.checkpoints
  UNION ALL SELECT step, 'action', concat_ws(' ', name, arguments, '(' || state || ')') FROM python.actions
  UNION ALL SELECT step, 'eval', left(coalesce(code, code_sha256), 100) FROM python.evals
)
SELECT step, kind, what FROM marks WHERE step IS NOT NULL AND $range ORDER BY step DESC LIMIT 500
