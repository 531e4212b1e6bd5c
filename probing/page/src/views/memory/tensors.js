/** Tensors by category, the largest of them, and who refers to them. */

import { useMemo } from "preact/hooks";
import { bytesText, numberText } from "../../asking/units.js";
import { html } from "../../html.js";

const LARGEST = 20;
/** @type {[string, string][]} */
const MOMENTS = [["before_backward", "before the backward pass"], ["now", "at the end of a step"]];
/** @type {Record<string, string>} */
export const COLORS = {
  parameters: "#0072b2", gradients: "#8a6fb0", optimizer_state: "#009e73", buffers: "#56b4e9",
  activations: "#d55e00", inputs: "#e69f00", temporary: "#cc79a7", other: "#9a9a9a",
};

/**
 * @typedef {{moment: string, device: string, category: string, module: string | null, name: string | null,
 *   dtype: string, shape: string, bytes: number, age: number | null, frame: string | null, sum: number, storages: number}} Tensor
 */

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {Tensor[]}
 */
function tensorsOf(rows) {
  const names = ["moment", "device", "category", "module", "name", "dtype", "shape", "bytes", "age_steps", "frame", "category_bytes", "category_storages"];
  const at = names.map((name) => rows.columns.find((one) => one.name === name)?.at ?? (() => null));
  return Array.from({ length: rows.length }, (_, row) => {
    const [moment, device, category, module, name, dtype, shape, bytes, age, frame, sum, storages] = at.map((one) => one(row));
    return {
      moment, device, category, module, name, dtype, shape, frame, bytes: Number(bytes),
      age: age === null ? null : Number(age), sum: Number(sum), storages: Number(storages),
    };
  });
}

/** @param {{rows: import("../../asking/rows.js").Rows}} properties */
export function Tensors({ rows }) {
  const all = useMemo(() => tensorsOf(rows), [rows]);
  const devices = [...new Set(all.map((one) => one.device))];
  if (all.length === 0) return html`<p>It holds no tensors.</p>`;
  const moment = all.some((one) => one.moment === "before_backward") ? "before_backward" : "now";
  const largest = all.filter((one) => one.moment === moment).slice(0, LARGEST);
  return html`<div class="plots">${devices.map((device) => html`<${Categories} key=${device} device=${device} all=${all.filter((one) => one.device === device)} />`)}
    <div class="wide-table"><table>
      <caption class="faint">The largest, ${MOMENTS.find(([key]) => key === moment)?.[1]}</caption>
      <thead><tr><th class="number">size</th><th>category</th><th>of</th><th>type and shape</th><th class="number">since</th><th>made at</th></tr></thead>
      <tbody>${largest.map((one) => html`<tr><td class="number">${bytesText(one.bytes)}</td><td><i class="dot" style=${{ background: COLORS[one.category] }}></i>${word(one.category)}</td>
        <td>${[one.module, one.name].filter(Boolean).join(".") || "–"}</td><td>${one.dtype}[${one.shape}]</td>
        <td class="number">${one.age === null ? "–" : `${numberText(one.age)} steps`}</td><td class="faint">${one.frame ?? "–"}</td></tr>`)}</tbody>
    </table></div></div>`;
}

/** @param {{device: string, all: Tensor[]}} properties */
function Categories({ device, all }) {
  const moments = MOMENTS.filter(([key]) => all.some((one) => one.moment === key));
  const sums = new Map(all.map((one) => [`${one.moment} ${one.category}`, one]));
  const total = (/** @type {string} */ moment) => Object.keys(COLORS).reduce((sum, category) => sum + (sums.get(`${moment} ${category}`)?.sum ?? 0), 0);
  const most = Math.max(...moments.map(([moment]) => total(moment)));
  const categories = Object.keys(COLORS).filter((category) => all.some((one) => one.category === category));
  return html`<div>
    ${moments.map(([moment, words]) => html`<p class="split-line"><span>${device}, ${words}: ${bytesText(total(moment))}</span>
      <span class="split" role="img" aria-label=${categories.map((category) => `${word(category)} ${bytesText(sums.get(`${moment} ${category}`)?.sum ?? 0)}`).join(", ")}>
        ${categories.map((category) => html`<i title=${word(category)} style=${{ background: COLORS[category], width: `${(100 * (sums.get(`${moment} ${category}`)?.sum ?? 0)) / (most || 1)}%` }}></i>`)}</span></p>`)}
    <table><thead><tr><th>${device}</th>${moments.map(([, words]) => html`<th class="number">${words}</th><th class="number">storages</th>`)}</tr></thead>
      <tbody>${categories.map((category) => html`<tr><td><i class="dot" style=${{ background: COLORS[category] }}></i>${word(category)}</td>
        ${moments.map(([moment]) => {
          const one = sums.get(`${moment} ${category}`);
          return html`<td class="number">${bytesText(one?.sum ?? 0)}</td><td class="number">${numberText(one?.storages ?? 0)}</td>`;
        })}</tr>`)}</tbody></table>
  </div>`;
}

/** @param {string} category */
export const word = (category) => category.replaceAll("_", " ");

/** @param {{found: any}} properties */
export function Holders({ found }) {
  return html`<div class="wide-table"><table>
    <caption class="faint">The largest at the end of a step, and what refers to each</caption>
    <thead><tr><th class="number">size</th><th>category</th><th>of</th><th>type and shape</th><th>held by</th></tr></thead>
    <tbody>${found.tensors.map((/** @type {any} */ one) => html`<tr>
      <td class="number">${bytesText(one.bytes)}</td><td>${word(one.category)}</td>
      <td>${[one.module, one.name].filter(Boolean).join(".") || "–"}</td><td>${one.dtype}[${one.shape}]</td>
      <td class="wide">${one.holders.length ? one.holders.map((/** @type {string} */ words) => html`<div>${words}</div>`) : "–"}</td></tr>`)}</tbody>
  </table>${found.notes.map((/** @type {string} */ note) => html`<p class="note">${note}</p>`)}</div>`;
}
