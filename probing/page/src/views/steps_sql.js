/** The statements of the steps: at most `MOST` points of any number of them. */

import { PHASES } from "../theme.js";

const MOST = 800;
const MEASURED = ["loss", "duration", "grad_norm", "allocated_bytes"];

/**
 * @param {number | null} from The first step; null for the first on record.
 * @param {number | null} to The last; null for the newest.
 * @returns {string} Least, mean and most of each measure, in groups of as many steps as it takes.
 */
export function stepsSql(from, to) {
  const range = [
    "duration IS NOT NULL",
    ...(from === null ? [] : [`step >= ${from}`]),
    ...(to === null ? [] : [`step <= ${to}`]),
  ].join(" AND ");
  const named = [...PHASES.map(([key]) => `${key}_s`), ...MEASURED, "tokens_per_s", "loss_finite"];
  const measures = MEASURED.flatMap((name) => {
    const value = name === "loss" || name === "grad_norm" ? finite(name) : name;
    return ["min", "avg", "max"].map((how) => `${how}(${value}) AS ${how}_${name}`);
  });
  const phases = PHASES.map(([key]) => `avg(coalesce(${key}_s, 0)) AS ${key}_s`);
  return `WITH s AS (
  SELECT step, ${named.join(", ")}
  FROM python.steps WHERE ${range}
), w AS (
  SELECT greatest(1, ceil((max(step) - min(step) + 1) / ${MOST}.0))::BIGINT AS width FROM s
)
SELECT step // width * width AS step, any_value(width) AS width, count(*) AS steps,
  ${measures.join(",\n  ")},
  ${phases.join(",\n  ")},
  avg(tokens_per_s) AS tokens_per_s,
  count(*) FILTER (NOT loss_finite) AS not_finite
FROM s, w GROUP BY 1 ORDER BY 1`;
}

/** @param {string} name */
const finite = (name) => `CASE WHEN isfinite(${name}) THEN ${name} END`;
