/** A plot of any answer: one column of numbers across, others up. */

import { useMemo, useState } from "preact/hooks";
import { numbers } from "../../asking/rows.js";
import { numberText } from "../../asking/units.js";
import { html } from "../../html.js";
import { Plot } from "../../parts/plot.js";

const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const MOST = 20_000;

/** @param {{rows: import("../../asking/rows.js").Rows, theme: string}} properties */
export function AnswerPlot({ rows, theme }) {
  const names = rows.columns.filter((one) => one.isNumber).map((one) => one.name);
  return html`<${PlotOf} key=${JSON.stringify(names)} rows=${rows} names=${names} theme=${theme} />`;
}

/** @param {{rows: import("../../asking/rows.js").Rows, names: string[], theme: string}} properties */
function PlotOf({ rows, names, theme }) {
  const [across, setAcross] = useState(names[0] ?? "");
  const [up, setUp] = useState(names.slice(1, 2));
  const drawn = useMemo(() => plotted(rows, across, up), [rows, across, up]);
  if (names.length < 2) return html`<p>A plot needs two columns of numbers.</p>`;
  const flip = (/** @type {string} */ name) => setUp(up.includes(name) ? up.filter((one) => one !== name) : [...up, name]);
  return html`<div>
    <p class="bar"><label>Across <select value=${across} onChange=${(/** @type {Event} */ event) => setAcross(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}>
      ${names.map((name) => html`<option>${name}</option>`)}</select></label>
      Up ${names.filter((name) => name !== across).map((name) => html`<label><input type="checkbox" checked=${up.includes(name)} onChange=${() => flip(name)} /> ${name}</label>`)}
    </p>
    ${rows.length > MOST ? html`<p class="note">Drawn are ${MOST.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows, evenly chosen: group them in SQL to see least and most.</p>` : null}
    <${Plot} ...${drawn} name="" xName=${across} height=${360} format=${numberText} theme=${theme} />
  </div>`;
}

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @param {string} across
 * @param {string[]} up
 */
function plotted(rows, across, up) {
  const x = numbers(rows, across);
  const every = Math.max(1, Math.ceil(rows.length / MOST));
  const order = Array.from({ length: Math.ceil(rows.length / every) }, (_, index) => index * every)
    .filter((row) => x[row] !== null)
    .sort((a, b) => /** @type {number} */ (x[a]) - /** @type {number} */ (x[b]));
  const curves = up.filter((name) => name !== across).map((name, index) => {
    const values = numbers(rows, name);
    return { label: name, color: COLORS[index % COLORS.length], values: order.map((row) => values[row]) };
  });
  return { x: order.map((row) => x[row]), curves };
}
