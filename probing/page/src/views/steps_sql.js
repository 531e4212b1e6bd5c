/** The statement of the steps: at most 800 points of any number of them. */

import steps from "../sql/steps.sql";

/**
 * @param {number | null} from The first step; null for the first on record.
 * @param {number | null} to The last; null for the newest.
 * @returns {string} Least, mean and most of each measure, in groups of as many steps as it takes.
 */
export function stepsSql(from, to) {
  const ends = [...(from === null ? [] : [`step >= ${from}`]), ...(to === null ? [] : [`step <= ${to}`])];
  return steps.trim().replace("$range", ends.join(" AND ") || "true");
}
