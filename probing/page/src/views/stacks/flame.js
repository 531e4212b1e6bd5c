/** A flame graph of the stacks that were sampled: as wide as often they were seen. */

import { useMemo } from "preact/hooks";
import { usePolled } from "../../asking/polling.js";
import { query } from "../../asking/rows.js";
import { html } from "../../html.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import samplesSql from "../../sql/samples.sql";
import { boxesOf, FlameGraph } from "./flame_graph.js";

/** @param {{of: string, theme: string}} properties */
export function Flame({ of, theme }) {
  const { value, error, again } = usePolled((signal) => query(of, samplesSql.trim(), { signal }), 0, [of]);
  const drawn = useMemo(() => (value ? boxesOf(treesOf(value)) : null), [value]);
  if (!drawn) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<p class="faint">Reading what was sampled …</p>`;
  if (drawn.boxes.length === 0) {
    return html`<p class="note">None were sampled. <code>probing PID config sampling_hz=20</code> begins with that: it costs the training a little of its time.</p>`;
  }
  return html`<div>
    <${FlameGraph} drawn=${drawn} theme=${theme} format=${count} name="stacks by how often they were seen" />
    <${ShownSql} sql=${samplesSql.trim()} of=${of} />
  </div>`;
}

/** @param {number} number */
const count = (number) => `${Math.round(number).toLocaleString("en")} ${Math.round(number) === 1 ? "sample" : "samples"}`;

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {import("./flame_graph.js").Tree[]} The most often seen first.
 */
function treesOf(rows) {
  const [thread, stack, samples] = rows.columns.map((one) => one.at);
  /** @typedef {{inner: Map<string, Known>, weight: number}} Known */
  /** @type {Known} */
  const root = { inner: new Map(), weight: 0 };
  for (let row = 0; row < rows.length; row++) {
    let node = root;
    for (const frame of [String(thread(row) ?? ""), ...String(stack(row)).split(";")]) {
      let next = node.inner.get(frame);
      if (!next) node.inner.set(frame, (next = { inner: new Map(), weight: 0 }));
      next.weight += Number(samples(row));
      node = next;
    }
  }
  /** @type {(known: Known) => import("./flame_graph.js").Tree[]} */
  const sorted = ({ inner }) => [...inner].map(([frame, one]) => ({ frame, weight: one.weight, inner: sorted(one) }))
    .sort((a, b) => b.weight - a.weight);
  return sorted(root);
}
