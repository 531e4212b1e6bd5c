/** The statements of the steps: at most 800 points of any number of them, and what happened at which. */

import beside from "../../sql/beside.sql";
import marks from "../../sql/marks.sql";
import steps from "../../sql/steps.sql";

/** @typedef {{from: number | null, to: number | null}} Range The first step and the last; null for the first on record, and for the newest. */

/**
 * @param {string} sql
 * @param {Range} range
 */
function within(sql, { from, to }) {
  const ends = [...(from === null ? [] : [`step >= ${from}`]), ...(to === null ? [] : [`step <= ${to}`])];
  return sql.trim().replaceAll("$range", ends.join(" AND ") || "true");
}

/**
 * @param {Range} range
 * @returns {string} Least, mean and most of each measure, in groups of as many steps as it takes.
 */
export const stepsSql = (range) => within(steps, range);

/**
 * @param {Range} range
 * @returns {string} Evaluations, checkpoints, actions and evals of these steps.
 */
export const marksSql = (range) => within(marks, range);

/**
 * @param {Range} range
 * @returns {string} What the script has told of these steps, and its device.
 */
export const besideSql = (range) => within(beside, range);
