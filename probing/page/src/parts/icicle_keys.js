/** The keys of boxes of time: they zoom, move, and go from box to box. */

import { lanesOf, meantBy } from "./icicle_drawing.js";

/**
 * @typedef {import("../views/step/step_boxes.js").Box} Box
 * @typedef {import("../views/step/step_boxes.js").Boxes} Boxes
 * @typedef {{from: number, to: number}} Range
 */

/**
 * A range within the whole, as wide as was asked for.
 * @param {number} from
 * @param {number} span
 * @param {number} end
 * @returns {Range}
 */
export function within(from, span, end) {
  const wide = Math.min(Math.max(span, end * 1e-6), end);
  const low = Math.min(Math.max(from, 0), end - wide);
  return { from: low, to: low + wide };
}

/**
 * A range as wide as the one that is shown, or as it has to be, in which a box is seen.
 * @param {Box} box
 * @param {Range} range
 * @param {number} end
 * @returns {Range}
 */
export function rangeWith(box, range, end) {
  const span = range.to - range.from;
  if (box.to > range.from && box.from < range.to) return range;
  return within((box.from + box.to - span) / 2, span, end);
}

/**
 * The box beside another: in it, around it, before or after it.
 * @param {Boxes} drawn
 * @param {Box | null} box The first that is seen where there is none yet.
 * @param {Range} range What is seen.
 * @param {"ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight"} way
 * @returns {Box | null}
 */
export function boxBeside({ boxes }, box, range, way) {
  if (!box) return boxes.find((one) => one.to > range.from && one.from < range.to) ?? null;
  const lane = (/** @type {number} */ number) => lanesOf(boxes).find((all) => all[0].lane === number) ?? [];
  if (way === "ArrowUp") return lane(box.lane - 1).find((one) => one.from <= box.from && box.from < one.to) ?? box;
  if (way === "ArrowDown") return lane(box.lane + 1).find((one) => one.from >= box.from && one.from < box.to) ?? box;
  const own = lane(box.lane);
  return own[own.indexOf(box) + (way === "ArrowLeft" ? -1 : 1)] ?? box;
}

/**
 * @param {Boxes} drawn
 * @param {string} search
 * @param {Box | null} box
 * @returns {Box | null} The next box after one that a search means, from the first again after the last.
 */
export function nextMeant({ boxes }, search, box) {
  const meant = boxes.filter(meantBy(search)).sort((a, b) => a.from - b.from || a.lane - b.lane);
  return meant[(box ? meant.indexOf(box) + 1 : 0) % meant.length] ?? null;
}

/**
 * @param {{drawn: Boxes, range: Range, whole: number, seen: Box | null, setRange: (range: Range) => void, setSeen: (box: Box | null) => void}} state
 */
export const keysOf = ({ drawn, range, whole, seen, setRange, setSeen }) => (/** @type {KeyboardEvent} */ event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const span = range.to - range.from;
  const { key, shiftKey } = event;
  const isSideways = key === "ArrowLeft" || key === "ArrowRight";
  if (key === "ArrowUp" || key === "ArrowDown" || (isSideways && shiftKey)) {
    const box = boxBeside(drawn, seen, range, key);
    setSeen(box);
    if (box) setRange(rangeWith(box, range, whole));
  } else if (key === "Enter" && seen) setRange({ from: seen.from, to: seen.to });
  else if (key === "0") setRange({ from: 0, to: whole });
  else if (key === "+") setRange(within(range.from + span / 4, span / 2, whole));
  else if (key === "-") setRange(within(range.from - span / 2, span * 2, whole));
  else if (isSideways) setRange(within(range.from + (key === "ArrowLeft" ? -span : span) / 4, span, whole));
  else return;
  event.preventDefault();
};
