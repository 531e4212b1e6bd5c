/** What happened at which step: evaluations, checkpoints, actions, and since when something is wrong. */

import { usePolled } from "../../asking/polling.js";
import { query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { html } from "../../html.js";
import { colorOf } from "../../theme.js";
import { marksSql } from "./steps_sql.js";

const LIVE_MS = 10_000;
const FINDINGS_MS = 30_000;
/** @type {Record<string, string>} */
const COLORS = { evaluation: "#56b4e9", checkpoint: "#009e73", action: "#cc79a7", eval: "#e69f00", finding: "#d55e00" };

/** More marks of a kind are no lines but ticks, which leave the curves to be seen. */
const MOST_LINES = 12;

/** @typedef {{step: number, kind: string, what: string, color: string, isTick: boolean}} Mark */

/**
 * @param {string} of
 * @param {boolean} isLive
 * @param {import("./steps_sql.js").Range | null} range Which steps; null as long as their plots are waited for, which come first.
 * @returns {Mark[]} The newest first.
 */
export function useMarks(of, isLive, range) {
  const sql = range && marksSql(range);
  const rows = usePolled(async (signal) => (sql ? query(of, sql, { signal }) : null), isLive ? LIVE_MS : 0, [of, sql]);
  const found = usePolled(async (signal) => (sql ? askJson("findings", { endpoint: of }, signal) : null), isLive ? FINDINGS_MS : 0, [of, sql === null]);
  const [step, kind, what] = rows.value?.columns.map((one) => one.at) ?? [];
  const recorded = Array.from({ length: rows.value?.length ?? 0 }, (_, row) => ({ step: Number(step(row)), kind: String(kind(row)), what: String(what(row) ?? "") }));
  const wrong = (found.value?.findings ?? []).filter((/** @type {any} */ one) => one.since_step !== null)
    .map((/** @type {any} */ one) => ({ step: one.since_step, kind: "finding", what: one.summary }));
  const all = [...wrong, ...recorded];
  const many = new Set(Object.keys(COLORS).filter((name) => all.filter((one) => one.kind === name).length > MOST_LINES));
  return all.map((one) => ({ ...one, color: COLORS[one.kind] ?? colorOf("--faint"), isTick: many.has(one.kind) }));
}

/** @param {{marks: Mark[], step: number | null, width: number}} properties `step`: where the cursor is, give or take `width`. */
export function Marks({ marks, step, width }) {
  if (marks.length === 0) return null;
  const kinds = Object.keys(COLORS).filter((kind) => marks.some((one) => one.kind === kind));
  const near = step === null ? [] : marks.filter((one) => Math.abs(one.step - step) <= width);
  return html`<div>
    <p class="bar">${kinds.map((kind) => html`<span><i class="dot" style=${{ background: COLORS[kind] }}></i>${kind} ${marks.filter((one) => one.kind === kind).length}</span>`)}
      <span class="faint no-print">${near.length ? near.slice(0, 3).map((one) => `${one.kind} at step ${one.step.toLocaleString("en")}: ${one.what}`).join("; ") : "lines and ticks in the plots; point at one to read what it is"}</span></p>
    <details><summary>${marks.length === 1 ? "1 mark" : `${marks.length} marks`}</summary><table><thead><tr><th class="number">step</th><th>what</th><th></th></tr></thead>
      <tbody>${marks.map((one) => html`<tr><td class="number">${one.step.toLocaleString("en")}</td><td>${one.kind}</td><td class="wide">${one.what}</td></tr>`)}</tbody></table></details>
  </div>`;
}
