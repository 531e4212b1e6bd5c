SELECT moment, device, category, step, module, name, dtype, shape, bytes, age_steps, frame,
  sum(bytes) OVER same AS category_bytes, count(*) OVER same AS category_storages
FROM python.tensors
WINDOW same AS (PARTITION BY moment, device, category)
QUALIFY row_number() OVER (PARTITION BY moment, device, category ORDER BY bytes DESC) <= 20
ORDER BY bytes DESC
