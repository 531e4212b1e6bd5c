/** The rows of a table of any length: only those that are seen are in the document. */

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../html.js";

const ROW = 24;
/** The tallest element that all browsers draw right. */
const MOST_PIXELS = 8_000_000;
const BEYOND = 8;

/**
 * @param {{length: number, name: string, head: any, row: (number: number) => any, kind?: string, rest?: string}} properties
 *   `head`: the row of headings; `row`: that of a number; `rest`: where those are that are not printed.
 */
export function VirtualRows({ length, name, head, row, kind = "", rest = "" }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 480 });
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const watch = new ResizeObserver(() => setView({ top: node.scrollTop, height: node.clientHeight }));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  const { start, end, top, tall } = seenOf(length, view);
  const numbers = Array.from({ length: end - start }, (_, i) => start + i);
  const scrolled = (/** @type {Event} */ event) => {
    const node = /** @type {HTMLDivElement} */ (event.currentTarget);
    setView({ top: node.scrollTop, height: node.clientHeight });
  };
  return html`${numbers.length < length ? html`<p class="print-only">${`Printed are rows ${(start + 1).toLocaleString("en")} to ${end.toLocaleString("en")} of ${length.toLocaleString("en")}${rest}.`}</p>` : null}
  <div class="grid" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${name} style=${{ maxHeight: `${tall + ROW + 16}px` }}>
    <div style=${{ height: `${tall + ROW + 12}px` }}>
      <table class=${kind} style=${{ transform: `translateY(${top}px)` }} aria-rowcount=${length}>
        <thead>${head}</thead>
        <tbody>${numbers.map(row)}</tbody>
      </table>
    </div>
  </div>`;
}

/**
 * Which rows are seen, and where the table stands; of very many rows a pixel is several.
 * @param {number} length
 * @param {{top: number, height: number}} view How far it is scrolled, and how much is seen.
 */
function seenOf(length, { top, height }) {
  const whole = length * ROW;
  const tall = Math.min(whole, MOST_PIXELS);
  const share = tall > height ? top / (tall - height) : 0;
  const first = Math.floor((share * Math.max(0, whole - height)) / ROW);
  const shown = Math.ceil(height / ROW) + BEYOND;
  const start = Math.max(0, Math.min(first, length - shown + BEYOND));
  return { start, end: Math.min(start + shown, length), top: Math.max(0, Math.min(top, tall - ROW)), tall };
}
