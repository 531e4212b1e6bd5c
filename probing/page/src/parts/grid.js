/** An answer as a table of any number of rows. */

import { cellText } from "../asking/rows.js";
import { html } from "../html.js";
import { VirtualRows } from "./virtual_rows.js";

const LONGEST = 400;

/** @param {{rows: import("../asking/rows.js").Rows, name: string}} properties */
export function Grid({ rows, name }) {
  const head = html`<tr>
    <th class="number">#</th>
    ${rows.columns.map((one) => html`<th class=${one.isNumber ? "number" : ""}>${one.name}</th>`)}
  </tr>`;
  const row = (/** @type {number} */ number) => html`<tr key=${number} aria-rowindex=${number + 1}>
    <td class="number faint">${number + 1}</td>
    ${rows.columns.map((one) => html`<${Cell} value=${one.at(number)} isNumber=${one.isNumber} />`)}
  </tr>`;
  return html`<${VirtualRows} length=${rows.length} name=${name} head=${head} row=${row} rest=": a download has them all" />`;
}

/** @param {{value: any, isNumber: boolean}} properties */
function Cell({ value, isNumber }) {
  if (value === null || value === undefined) return html`<td class=${isNumber ? "null number" : "null"}>NULL</td>`;
  const text = cellText(value);
  const cut = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  return html`<td class=${isNumber ? "number" : ""} title=${text.length > 40 ? text.slice(0, 4000) : undefined}>${cut}</td>`;
}
