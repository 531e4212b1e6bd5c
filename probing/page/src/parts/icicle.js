/** Boxes of time on a canvas: zoom by the wheel, a click or keys, move by dragging. */

import { useEffect, useRef, useState } from "preact/hooks";
import { secondsText } from "../asking/units.js";
import { html } from "../html.js";
import { colorOf } from "../theme.js";
import { draw, LANE } from "./icicle_drawing.js";
import { usePaper } from "./paper.js";

/**
 * @typedef {import("../views/step/step_boxes.js").Box} Box
 * @typedef {import("../views/step/step_boxes.js").Boxes} Boxes
 * @typedef {{from: number, to: number}} Range
 */

const TOP = 20;

/**
 * @param {{drawn: Boxes, paint: (box: Box) => string, search: string, theme: string,
 *   range: Range, setRange: (range: Range) => void, told: (box: Box) => string, whole?: number,
 *   format?: (value: number) => string, name?: string}} properties `whole`: where the longest of several ends.
 */
export function Icicle({ drawn, paint, search, theme, range, setRange, told, whole = drawn.end, format = secondsText, name = "calls of the step over time" }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const [seen, setSeen] = useState(/** @type {Box | null} */ (null));
  const height = TOP + drawn.lanes * LANE;
  useEffect(() => {
    const node = canvas.current?.parentElement;
    if (!node) return;
    const watch = new ResizeObserver(() => setWidth(node.clientWidth));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  const drawAt = (/** @type {number} */ wide) => {
    const node = canvas.current;
    if (!node || !wide) return;
    const ratio = devicePixelRatio || 1;
    if (node.width !== wide * ratio || node.height !== height * ratio) {
      Object.assign(node, { width: wide * ratio, height: height * ratio });
    }
    const context = /** @type {CanvasRenderingContext2D} */ (node.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ink = { line: colorOf("--line"), faint: colorOf("--faint"), bad: colorOf("--bad"), ink: colorOf("--ink") };
    draw(context, { drawn, paint, search, range, width: wide, height, top: TOP, ink, seen, format });
  };
  useEffect(() => {
    const frame = requestAnimationFrame(() => drawAt(width));
    return () => cancelAnimationFrame(frame);
  }, [drawn, paint, search, theme, range, width, seen]);
  usePaper((wide) => drawAt(wide ?? width));
  useWheel(canvas, range, whole, setRange);
  const found = (/** @type {MouseEvent} */ event) => boxAt(drawn, event, range, width);
  const press = keysOf(range, whole, setRange);
  const drag = dragging(range, whole, width, setRange, (event) => {
    const box = found(event);
    if (box) setRange({ from: box.from, to: box.to });
  });
  return html`<div class="icicle">
    <canvas ref=${canvas} tabindex="0" role="img" aria-label=${name}
      style=${{ width: "100%", height: `${height}px` }} onKeyDown=${press} onMouseDown=${drag}
      onMouseMove=${(/** @type {MouseEvent} */ event) => setSeen(found(event))} onMouseLeave=${() => setSeen(null)}
      onDblClick=${() => setRange({ from: 0, to: whole })}></canvas>
    <p class="faint told">${seen ? told(seen) : `${format(range.to - range.from)} are shown of ${format(whole)}`}</p>
  </div>`;
}

/**
 * @param {Boxes} drawn
 * @param {MouseEvent} event
 * @param {Range} range
 * @param {number} width
 * @returns {Box | null}
 */
function boxAt({ boxes }, event, range, width) {
  const lane = Math.floor((event.offsetY - TOP) / LANE);
  const at = range.from + (event.offsetX / width) * (range.to - range.from);
  return boxes.find((box) => box.lane === lane && box.from <= at && at < box.to) ?? null;
}

/**
 * A range within the whole, as wide as was asked for.
 * @param {number} from
 * @param {number} span
 * @param {number} end
 * @returns {Range}
 */
function within(from, span, end) {
  const wide = Math.min(Math.max(span, end * 1e-6), end);
  const low = Math.min(Math.max(from, 0), end - wide);
  return { from: low, to: low + wide };
}

/**
 * @param {{current: HTMLCanvasElement | null}} canvas
 * @param {Range} range
 * @param {number} end
 * @param {(range: Range) => void} setRange
 */
function useWheel(canvas, range, end, setRange) {
  useEffect(() => {
    const node = canvas.current;
    const turn = (/** @type {WheelEvent} */ event) => {
      if (!node || event.shiftKey) return;
      event.preventDefault();
      const share = event.offsetX / node.clientWidth;
      const span = range.to - range.from;
      const wide = Math.min(end, span * Math.exp(event.deltaY * 0.002));
      setRange(within(range.from + share * (span - wide), wide, end));
    };
    node?.addEventListener("wheel", turn, { passive: false });
    return () => node?.removeEventListener("wheel", turn);
  }, [range, end]);
}

/**
 * @param {Range} range
 * @param {number} end
 * @param {(range: Range) => void} setRange
 */
const keysOf = (range, end, setRange) => (/** @type {KeyboardEvent} */ event) => {
  const span = range.to - range.from;
  /** @type {Record<string, Range>} */
  const places = {
    "0": { from: 0, to: end },
    "+": within(range.from + span / 4, span / 2, end), "-": within(range.from - span / 2, span * 2, end),
    ArrowLeft: within(range.from - span / 4, span, end), ArrowRight: within(range.from + span / 4, span, end),
  };
  if (!places[event.key]) return;
  event.preventDefault();
  setRange(places[event.key]);
};

/**
 * @param {Range} range
 * @param {number} end
 * @param {number} width
 * @param {(range: Range) => void} setRange
 * @param {(event: MouseEvent) => void} click What a press without a move is.
 */
const dragging = (range, end, width, setRange, click) => (/** @type {MouseEvent} */ begun) => {
  const span = range.to - range.from;
  let hasMoved = false;
  const move = (/** @type {MouseEvent} */ event) => {
    const by = event.clientX - begun.clientX;
    hasMoved ||= Math.abs(by) > 3;
    if (hasMoved) setRange(within(range.from - (by / width) * span, span, end));
  };
  const stop = () => {
    removeEventListener("mousemove", move);
    removeEventListener("mouseup", stop);
    if (!hasMoved && begun.detail === 1) click(begun);
  };
  addEventListener("mousemove", move);
  addEventListener("mouseup", stop);
};
