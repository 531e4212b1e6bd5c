/** Draws boxes of time: what is too narrow to be seen by itself is drawn with what is beside it. */

import { secondsText, ticksText } from "../asking/units.js";
import { visible } from "../html.js";

export const LANE = 20;
const LEAST_TEXT = 36;
/** Narrower boxes are drawn together with those beside them. */
const NARROW = 1;
/** Distances of ticks in seconds that are round as they are told: in minutes, hours, days. */
const LONG_S = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
const LEAST_LONG_S = 20;

/**
 * @typedef {import("../views/step/step_boxes.js").Box} Box
 * @typedef {{drawn: import("../views/step/step_boxes.js").Boxes, paint: (box: Box) => string,
 *   search: string, range: {from: number, to: number}, width: number, height: number, top: number,
 *   ink: Record<"line" | "faint" | "bad" | "ink", string>, seen: Box | null, format: (value: number, digits?: number) => string}} Picture
 */

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 */
export function draw(context, picture) {
  const { drawn, range, width, height, top } = picture;
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  drawTimes(context, picture);
  const scale = width / (range.to - range.from);
  const isMeantBy = meantBy(picture.search);
  for (const boxes of lanesOf(drawn.boxes)) {
    let index = firstAfter(boxes, range.from, 0);
    while (index < boxes.length && boxes[index].from <= range.to) {
      const box = boxes[index];
      const left = Math.max(0, (box.from - range.from) * scale);
      const wide = Math.max(NARROW, Math.min(width, (box.to - range.from) * scale) - left);
      drawBox(context, picture, box, left, top + box.lane * LANE, wide, isMeantBy(box));
      index = Math.max(index + 1, wide > NARROW ? 0 : firstAfter(boxes, range.from + (left + wide) / scale, index));
    }
  }
}

/**
 * @param {string} search Empty for all.
 * @returns {(box: Box) => boolean}
 */
export function meantBy(search) {
  const words = search.toLowerCase();
  return (box) => !words || box.name.toLowerCase().includes(words) || box.kind.toLowerCase().includes(words);
}

/** @type {WeakMap<Box[], Box[][]>} */
const LANES = new WeakMap();

/**
 * @param {Box[]} boxes By lane, and in it in the order of time.
 * @returns {Box[][]} Those of each lane.
 */
export function lanesOf(boxes) {
  const known = LANES.get(boxes);
  if (known) return known;
  /** @type {Box[][]} */
  const lanes = [];
  for (const box of boxes) (lanes[box.lane] ??= []).push(box);
  const found = lanes.filter(Boolean);
  LANES.set(boxes, found);
  return found;
}

/**
 * @param {Box[]} boxes Of one lane.
 * @param {number} moment
 * @param {number} from Where to look from.
 * @returns {number} The first that ends after a moment.
 */
function firstAfter(boxes, moment, from) {
  let low = from;
  let high = boxes.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (boxes[middle].to > moment) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 * @param {Box} box
 * @param {number} left
 * @param {number} y
 * @param {number} wide
 * @param {boolean} isMeant
 */
function drawBox(context, { paint, ink, seen: pointed }, box, left, y, wide, isMeant) {
  const color = paint(box);
  context.globalAlpha = isMeant ? 1 : 0.2;
  context.fillStyle = color;
  context.fillRect(left, y, wide > 3 ? wide - 0.5 : wide, LANE - 1);
  if (box.isOpen || box === pointed) {
    context.strokeStyle = box.isOpen ? ink.bad : ink.ink;
    context.lineWidth = 2;
    context.strokeRect(left + 1, y + 1, Math.max(1, wide - 2), LANE - 3);
  }
  if (wide >= LEAST_TEXT) {
    context.fillStyle = textOn(color);
    const room = Math.floor((wide - 8) / 6.4);
    const name = box.isOpen ? `${box.name} (open)` : box.name;
    const words = visible(box.words && box.words.length <= room ? box.words : name);
    const isCut = words.length > room;
    const seen = !isCut ? words : name.includes(".") ? `…${words.slice(words.length - room + 1)}` : `${words.slice(0, room - 1)}…`;
    context.fillText(seen, left + 4, y + LANE / 2, wide - 6);
  }
  context.globalAlpha = 1;
}

/** @type {Map<string, string>} */
const TEXTS = new Map();

/**
 * @param {string} color As `#rrggbb` or `rgb(r,g,b)`.
 * @returns {string} Black or white, whichever can be read on it.
 */
function textOn(color) {
  const known = TEXTS.get(color);
  if (known) return known;
  const parts = color.startsWith("#")
    ? [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16))
    : (color.match(/\d+/g) ?? []).map(Number);
  const light = 0.299 * parts[0] + 0.587 * parts[1] + 0.114 * parts[2];
  const found = light > 140 ? "#000" : "#fff";
  TEXTS.set(color, found);
  return found;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Picture} picture
 */
function drawTimes(context, { range, width, height, ink, format }) {
  const span = range.to - range.from;
  const rough = span / Math.max(2, width / 130);
  const power = 10 ** Math.floor(Math.log10(rough));
  const even = format === secondsText ? LONG_S.find((one) => one >= rough) : undefined;
  const every = (rough > LEAST_LONG_S && even) || power * ([1, 2, 5, 10].find((one) => one * power >= rough) ?? 10);
  context.strokeStyle = ink.line;
  context.lineWidth = 1;
  context.fillStyle = ink.faint;
  const first = Math.ceil(range.from / every);
  const ticks = Array.from({ length: Math.max(0, Math.floor(range.to / every) - first + 1) }, (_, index) => Number(((first + index) * every).toPrecision(12)));
  const texts = ticksText(ticks, format);
  ticks.forEach((at, index) => {
    const x = Math.round(((at - range.from) / span) * width) + 0.5;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height);
    context.stroke();
    if (x + 3 + context.measureText(texts[index]).width <= width) context.fillText(texts[index], x + 3, 9);
  });
}
