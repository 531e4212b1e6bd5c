/** A flame graph of the stacks that were sampled: as wide as often they were seen. */

import { useMemo, useState } from "preact/hooks";
import { usePolled } from "../../asking/polling.js";
import { query } from "../../asking/rows.js";
import { html } from "../../html.js";
import { Icicle } from "../../parts/icicle.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import samplesSql from "../../sql/samples.sql";

/** @typedef {import("../step/step_boxes.js").Box} Box */

const COLORS = ["#e69f00", "#56b4e9", "#7fb8a4", "#d9a3c0", "#c9c06a", "#a9b4c2", "#e0996f"];

/** @param {{of: string, theme: string}} properties */
export function Flame({ of, theme }) {
  const { value, error } = usePolled((signal) => query(of, samplesSql.trim(), { signal }), 0, [of]);
  const drawn = useMemo(() => (value ? boxesOf(value) : null), [value]);
  const [search, setSearch] = useState("");
  const [range, setRange] = useState(/** @type {{from: number, to: number} | null} */ (null));
  if (!drawn) return error ? html`<${Trouble} error=${error} />` : html`<p class="faint">Reading what was sampled …</p>`;
  if (drawn.boxes.length === 0) {
    return html`<p class="note">None were sampled. <code>probing PID config sampling_hz=20</code> begins with that: it costs the training a little of its time.</p>`;
  }
  const told = (/** @type {Box} */ box) => [box.name, box.kind, `${count(box.to - box.from)}, ${((100 * (box.to - box.from)) / drawn.end).toPrecision(2)} %`].filter(Boolean).join(" · ");
  return html`<div>
    <p class="bar no-print"><label>Search <input type="search" value=${search} placeholder="function or file"
      onInput=${(/** @type {Event} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></label>
      <span class="faint">One colour for each file. Click a box or turn the wheel to zoom, drag to move, double-click for all.</span></p>
    <${Icicle} drawn=${drawn} paint=${paint} search=${search} theme=${theme} told=${told} format=${count} name="stacks by how often they were seen"
      range=${range ?? { from: 0, to: drawn.end }} setRange=${setRange} />
    <${ShownSql} sql=${samplesSql.trim()} of=${of} />
  </div>`;
}

/** @param {number} number */
const count = (number) => `${Math.round(number).toLocaleString("en")} ${Math.round(number) === 1 ? "sample" : "samples"}`;

/** @param {Box} box Its colour: one for each file. */
function paint(box) {
  if (!box.kind) return "#9a9a9a";
  let sum = 0;
  for (const letter of box.kind) sum = (sum * 31 + letter.charCodeAt(0)) % 65_521;
  return COLORS[sum % COLORS.length];
}

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {import("../step/step_boxes.js").Boxes}
 */
export function boxesOf(rows) {
  const [thread, stack, samples] = rows.columns.map((one) => one.at);
  /** @typedef {{inner: Map<string, Tree>, count: number}} Tree */
  /** @type {Tree} */
  const root = { inner: new Map(), count: 0 };
  for (let row = 0; row < rows.length; row++) {
    const number = Number(samples(row));
    let node = root;
    root.count += number;
    for (const frame of [String(thread(row) ?? ""), ...String(stack(row)).split(";")]) {
      let next = node.inner.get(frame);
      if (!next) node.inner.set(frame, (next = { inner: new Map(), count: 0 }));
      next.count += number;
      node = next;
    }
  }
  /** @type {Box[]} */
  const boxes = [];
  let lanes = 0;
  const place = (/** @type {Tree} */ tree, /** @type {number} */ from, /** @type {number} */ lane) => {
    let at = from;
    for (const [frame, inner] of [...tree.inner].sort(([, a], [, b]) => b.count - a.count)) {
      const [, name, file] = /^(.*?) \((.*)\)$/.exec(frame) ?? [null, frame, ""];
      boxes.push({ name: String(name), kind: String(file), stage: "", lane, from: at, to: at + inner.count, isOpen: false, memory: null });
      lanes = Math.max(lanes, lane + 1);
      place(inner, at, lane + 1);
      at += inner.count;
    }
  };
  place(root, 0, 0);
  boxes.sort((a, b) => a.lane - b.lane || a.from - b.from);
  return { boxes, lanes, end: root.count };
}
