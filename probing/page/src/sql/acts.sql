SELECT start_ns, 'action' AS kind, step, name || ' ' || coalesce(arguments, '') AS what, coalesce(state, 'not at its end') AS state, coalesce(changes, '') AS came_of_it FROM python.actions
UNION ALL
SELECT start_ns, 'eval', step, coalesce(code, code_sha256), coalesce(state, 'waits or runs'), coalesce(error_type, '') FROM python.evals
ORDER BY start_ns DESC LIMIT 100
