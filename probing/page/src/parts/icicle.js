/** Boxes of time on a canvas: zoom by the wheel, a click or keys, move by dragging. */

import { useEffect, useRef, useState } from "preact/hooks";
import { secondsText } from "../asking/units.js";
import { html } from "../html.js";
import { colorOf } from "../theme.js";
import { draw, LANE } from "./icicle_drawing.js";
import { keysOf, nextMeant, rangeWith, within } from "./icicle_keys.js";
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
 *   format?: (value: number, digits?: number) => string, name?: string, turn?: number}} properties `whole`: where the longest of several
 *   ends; `turn`: with each other one the next box is gone to that the search means.
 */
export function Icicle({ drawn, paint, search, theme, range, setRange, told, whole = drawn.end, format = secondsText, name = "calls of the step over time", turn = 0 }) {
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
  const press = keysOf({ drawn, range, whole, seen, setRange, setSeen });
  useEffect(() => {
    const box = turn ? nextMeant(drawn, search, seen) : null;
    if (!box) return;
    setSeen(box);
    setRange(rangeWith(box, range, whole));
  }, [turn]);
  const drag = dragging(range, whole, width, setRange, (event) => {
    const box = found(event);
    if (box) setRange({ from: box.from, to: box.to });
  });
  return html`<div class="icicle">
    <canvas ref=${canvas} tabindex="0" role="img" aria-label=${name}
      style=${{ width: "100%", height: `${height}px` }} onKeyDown=${press} onMouseDown=${drag}
      onMouseMove=${(/** @type {MouseEvent} */ event) => setSeen(found(event))} onMouseLeave=${() => setSeen(null)}
      onDblClick=${() => setRange({ from: 0, to: whole })}></canvas>
    <p class="faint told" aria-live="polite">${seen ? told(seen) : `${format(range.to - range.from)} are shown of ${format(whole)}`}</p>
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
