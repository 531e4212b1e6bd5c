SELECT model, module, sum(flops) / nullif(sum(calls), 0) AS flops FROM python.modules WHERE flops > 0 GROUP BY model, module
