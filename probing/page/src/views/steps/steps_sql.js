/** The statements of the steps: at most 800 points of any number of them, and what happened at which. */

import marks from "../../sql/marks.sql";
import steps from "../../sql/steps.sql";

/**
 * @param {string} sql
 * @param {number | null} from
 * @param {number | null} to
 */
function within(sql, from, to) {
  const ends = [...(from === null ? [] : [`step >= ${from}`]), ...(to === null ? [] : [`step <= ${to}`])];
  return sql.trim().replaceAll("$range", ends.join(" AND ") || "true");
}

/**
 * @param {number | null} from The first step; null for the first on record.
 * @param {number | null} to The last; null for the newest.
 * @returns {string} Least, mean and most of each measure, in groups of as many steps as it takes.
 */
export const stepsSql = (from, to) => within(steps, from, to);

/**
 * @param {number | null} from
 * @param {number | null} to
 * @returns {string} Evaluations, checkpoints, actions and evals of these steps.
 */
export const marksSql = (from, to) => within(marks, from, to);
