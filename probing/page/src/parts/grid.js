/** A table of any number of rows: only those that are seen are in the document. */

import { useEffect, useRef, useState } from "preact/hooks";
import { cellText } from "../asking/rows.js";
import { html } from "../html.js";

const ROW = 24;
/** The tallest element that all browsers draw right. */
const MOST_PIXELS = 8_000_000;
const BEYOND = 8;
const LONGEST = 400;

/** @param {{rows: import("../asking/rows.js").Rows, name: string}} properties */
export function Grid({ rows, name }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 480 });
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const watch = new ResizeObserver(() => setView((old) => ({ ...old, height: node.clientHeight })));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  const whole = rows.length * ROW;
  const tall = Math.min(whole, MOST_PIXELS);
  const share = tall > view.height ? view.top / (tall - view.height) : 0;
  const first = Math.floor((share * Math.max(0, whole - view.height)) / ROW);
  const shown = Math.ceil(view.height / ROW) + BEYOND;
  const start = Math.max(0, Math.min(first, rows.length - shown + BEYOND));
  const numbers = Array.from({ length: Math.min(shown, rows.length - start) }, (_, i) => start + i);
  const scrolled = (/** @type {Event} */ event) => {
    const node = /** @type {HTMLDivElement} */ (event.currentTarget);
    setView({ top: node.scrollTop, height: node.clientHeight });
  };
  return html`${numbers.length < rows.length ? html`<p class="print-only">${`Printed are rows ${(start + 1).toLocaleString("en")} to ${(start + numbers.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")}: a download has them all.`}</p>` : null}
  <div class="grid" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${name}>
    <div style=${{ height: `${tall + ROW + 12}px` }}>
      <table style=${{ transform: `translateY(${Math.min(view.top, tall - ROW)}px)` }} aria-rowcount=${rows.length}>
        <thead>
          <tr>
            <th class="number">#</th>
            ${rows.columns.map((one) => html`<th class=${one.isNumber ? "number" : ""}>${one.name}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${numbers.map((row) => html`<tr key=${row} aria-rowindex=${row + 1}>
            <td class="number faint">${row + 1}</td>
            ${rows.columns.map((one) => html`<${Cell} value=${one.at(row)} isNumber=${one.isNumber} />`)}
          </tr>`)}
        </tbody>
      </table>
    </div>
  </div>`;
}

/** @param {{value: any, isNumber: boolean}} properties */
function Cell({ value, isNumber }) {
  if (value === null || value === undefined) return html`<td class=${isNumber ? "null number" : "null"}>NULL</td>`;
  const text = cellText(value);
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return html`<td class=${isNumber ? "number" : ""} title=${text.length > 40 ? text.slice(0, 4000) : undefined}>${cut}</td>`;
}
