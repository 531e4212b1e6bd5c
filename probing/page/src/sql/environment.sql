SELECT kind, name, CASE WHEN is_secret THEN 'not shown' ELSE value END AS value FROM python.environment
