SELECT thread, stack, count(*) AS samples FROM python.samples
WHERE stack IS NOT NULL GROUP BY thread, stack ORDER BY samples DESC LIMIT 5000
