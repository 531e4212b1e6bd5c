/** What stands beside the steps: what the script tells of itself, and its device. */

import { useMemo } from "preact/hooks";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { bytesText, numberText } from "../../asking/units.js";
import { html } from "../../html.js";
import { Plot } from "../../parts/plot.js";
import { besideSql } from "./steps_sql.js";

const LIVE_MS = 10_000;
const COLORS = ["#009e73", "#cc79a7", "#0072b2", "#e69f00"];

/** @typedef {import("../../asking/rows.js").Rows} Rows */

/**
 * @param {string} of
 * @param {boolean} isLive
 * @param {import("./steps_sql.js").Range | null} range As of `useMarks`.
 * @returns {Rows | null}
 */
export function useBeside(of, isLive, range) {
  const sql = range && besideSql(range);
  return usePolled(async (signal) => (sql ? query(of, sql, { signal }) : null), isLive ? LIVE_MS : 0, [of, sql]).value;
}

/**
 * @param {string} unit
 * @returns {(value: number | null, digits?: number) => string}
 */
function textIn(unit) {
  if (unit === "bytes") return bytesText;
  if (unit === "share") return (value, digits) => (value === null ? "–" : `${numberText(value * 100, digits)} %`);
  return (value, digits) => (unit === "number" || value === null ? numberText(value, digits) : `${numberText(value, digits)} ${unit}`);
}

/**
 * @param {Rows} rows In the order of their plots, and in each of steps.
 * @returns {{name: string, unit: string, x: (number | null)[], curve: any}[]}
 */
function plotsOf(rows) {
  const [plot, unit] = rows.columns.map((one) => one.at);
  const [x, low, values, high] = ["step", "least", "mean", "most"].map((name) => numbers(rows, name));
  const isGrouped = (numbers(rows, "width")[0] ?? 1) > 1;
  /** @type {number[]} */
  const begins = [];
  for (let row = 0; row < rows.length; row++) if (row === 0 || plot(row) !== plot(row - 1)) begins.push(row);
  return begins.map((from, index) => {
    const own = (/** @type {(number | null)[]} */ all) => all.slice(from, begins[index + 1] ?? rows.length);
    const edges = isGrouped ? { low: own(low), high: own(high) } : {};
    return {
      name: String(plot(from)), unit: String(unit(from)), x: own(x),
      curve: { label: isGrouped ? "mean" : String(plot(from)), color: COLORS[index % COLORS.length], values: own(values), ...edges },
    };
  });
}

/** @param {any} properties `rows`: what was found; the others are those of each plot. */
export function Beside({ rows, ...shared }) {
  const plots = useMemo(() => plotsOf(rows), [rows]);
  return html`${plots.map(({ name, unit, x, curve }) => html`<${Drawn} ...${shared} key=${name} name=${name} unit=${unit} x=${x} curve=${curve} />`)}
    ${plots.some(({ unit }) => unit !== "number") ? null : html`<p class="faint">Nothing of a device is on record: no accelerator is in use, or its driver tells nothing.</p>`}`;
}

/** @param {any} properties */
function Drawn({ unit, curve, ...shared }) {
  const curves = useMemo(() => [curve], [curve]);
  return html`<${Plot} ...${shared} curves=${curves} format=${textIn(unit)} isBinary=${unit === "bytes"} />`;
}
