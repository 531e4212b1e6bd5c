/** The modules of the models: parameters, time, gradients; shapes and FLOPs of their next call. */

import { useMemo, useRef, useState } from "preact/hooks";
import { useAsked } from "../../asking/asked.js";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { bytesText, numberText, secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { AskButton } from "../../parts/ask_button.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import modulesSql from "../../sql/modules.sql";
import observedSql from "../../sql/modules_observed.sql";
import recordSql from "../../sql/model_record.sql";
import { flat, shownOf, treesOf } from "./model_tree.js";

/** @typedef {import("./model_tree.js").Node} Node */

const LIVE_MS = 10_000;
const MOST = 500;
const OPEN_DEPTH = 3;
/** So many modules are unfolded at first. */
const MOST_OPEN = 100;

/** @type {{key: string, name: string, title: string, of: (node: Node) => number | null, text: (value: number | null) => string}[]} */
const MEASURES = [
  { key: "parameters", name: "parameters", title: "of it and what is in it", of: (node) => node.parameters, text: countText },
  { key: "parameterBytes", name: "size", title: "what the parameters take", of: (node) => node.parameterBytes, text: bytesText },
  { key: "forward", name: "forward", title: "in a step, mean of the last 50 on record", of: (node) => node.forward, text: secondsText },
  { key: "backward", name: "backward", title: "in a step, mean of the last 50 on record", of: (node) => node.backward, text: secondsText },
  { key: "flops", name: "FLOPs", title: "of its calls in the forward pass that was looked at", of: (node) => node.flops, text: countText },
  { key: "outputBytes", name: "output", title: "what its last call gave back", of: (node) => node.outputBytes, text: bytesText },
  { key: "gradient", name: "gradient norm", title: "of the gradients sampled last", of: (node) => node.gradient, text: numberText },
  { key: "change", name: "update norm", title: "of what the optimizer changed in the step measured last", of: (node) => node.change, text: numberText },
];

/** @param {{place: import("../../address.js").Place, isLive: boolean}} properties */
export function Model({ place, isLive }) {
  const of = place.of;
  const observed = useAsked((signal) => query(of, observedSql.trim(), { signal }));
  const measured = useAsked((signal) => askJson("gradients", { endpoint: of }, signal));
  const record = usePolled((signal) => query(of, recordSql.trim(), { signal }), isLive ? LIVE_MS : 0, [of, measured.value]);
  const known = useRef(/** @type {import("../../asking/rows.js").Rows | null} */ (null));
  const modules = usePolled(
    async (signal) => (isLive && !known.current ? (known.current = await query(of, modulesSql.trim(), { signal })) : known.current),
    isLive && !known.current ? LIVE_MS : 0, [of, isLive],
  );
  const seen = observed.value ?? modules.value;
  const trees = useMemo(() => treesOf(record.value, seen), [record.value, seen]);
  const isBusy = !record.value && !record.error;
  return html`<section>
    <h2>Model</h2>
    <${Trouble} error=${record.error} />
    <${Trouble} error=${observed.value ? null : modules.error} />
    ${!isLive && !seen && trees.length ? html`<p class="note">Parameters, shapes and FLOPs are told by a process that runs: these are the calls on its record.</p>` : null}
    <${AskButton} asked=${observed} word="Shapes and FLOPs" isOff=${!isLive}
      cost=${`watches every module in the next forward pass; that one takes a little longer${stepText(seen, "observed_step")}`} />
    <${AskButton} asked=${measured} word="Gradients and updates" isOff=${!isLive}
      cost=${`looks at every gradient in the next step, and keeps copies of the weights for it${stepText(record.value, "gradient_step")}`} />
    ${trees.length ? html`<${Trees} trees=${trees} />` : isBusy ? html`<p class="faint">Reading its modules …</p>` : html`<p>No call of a module is on record.</p>`}
    <${ShownSql} sql=${[recordSql.trim(), (observed.value ? observedSql : modulesSql).trim()]} of=${of} />
  </section>`;
}

/**
 * Of which step figures are that are not of now.
 * @param {import("../../asking/rows.js").Rows | null} rows
 * @param {string} column
 */
function stepText(rows, column) {
  const steps = rows ? numbers(rows, column).filter((one) => one !== null) : [];
  return steps.length ? `. Shown are those of step ${Math.max(...steps).toLocaleString("en")}` : "";
}

/** @param {{trees: Node[]}} properties */
function Trees({ trees }) {
  const [search, setSearch] = useState("");
  const [turned, setTurned] = useState(/** @type {Record<string, boolean>} */ ({}));
  const [sort, setSort] = useState({ by: "", isRising: false });
  const all = useMemo(() => flat(trees), [trees]);
  const least = all.length > MOST_OPEN ? OPEN_DEPTH - 1 : OPEN_DEPTH;
  const isOpen = (/** @type {Node} */ node) => turned[node.key] ?? node.depth < least;
  const value = sort.by === "name" ? (/** @type {Node} */ node) => node.name : MEASURES.find((one) => one.key === sort.by)?.of ?? null;
  const shown = shownOf(trees, { isOpen, search, value, isRising: sort.isRising });
  const fold = (/** @type {boolean} */ open) => setTurned(Object.fromEntries(all.map((node) => [node.key, open])));
  const measures = MEASURES.filter((one) => all.some((node) => one.of(node) !== null));
  const hasShapes = all.some((node) => node.output);
  return html`<div>
    <p class="bar no-print"><label>Search <input type="search" value=${search} placeholder="module or class"
        onInput=${(/** @type {Event} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></label>
      <button onClick=${() => fold(true)}>Unfold all</button> <button onClick=${() => fold(false)}>Fold all</button>
      <button onClick=${() => setSort({ by: "", isRising: false })} disabled=${!sort.by}>Order of the model</button>
      <span class="faint">${all.length.toLocaleString("en")} modules${search ? `, ${shown.length.toLocaleString("en")} found` : ""}</span></p>
    <div class="wide-table"><table class="list tree">
      <thead><tr><${SortHead} by="name" name="module" sort=${sort} setSort=${setSort} /><th>class</th>
        ${measures.map((one) => html`<${SortHead} by=${one.key} name=${one.name} title=${one.title} sort=${sort} setSort=${setSort} isNumber=${true} />`)}
        ${hasShapes ? html`<th>shapes</th>` : null}</tr></thead>
      <tbody>${shown.slice(0, MOST).map((node) => html`<${Line} key=${node.key} node=${node} measures=${measures} hasShapes=${hasShapes} most=${mostOf(trees)}
        isOpen=${isOpen(node)} isFlat=${search !== ""} turn=${(/** @type {boolean} */ open) => setTurned({ ...turned, [node.key]: open })} />`)}</tbody>
    </table></div>
    ${shown.length > MOST ? html`<p class="note">${MOST} of ${shown.length.toLocaleString("en")} are shown: search, or fold some.</p>` : null}
  </div>`;
}

/** @param {{by: string, name: string, title?: string, sort: {by: string, isRising: boolean}, setSort: (sort: {by: string, isRising: boolean}) => void, isNumber?: boolean}} properties */
function SortHead({ by, name, title, sort, setSort, isNumber = false }) {
  const is = sort.by === by;
  const turn = () => setSort({ by, isRising: is ? !sort.isRising : !isNumber });
  return html`<th class=${isNumber ? "number" : ""} aria-sort=${is ? (sort.isRising ? "ascending" : "descending") : "none"}>
    <button class="head" title=${title} onClick=${turn}>${name}${is ? (sort.isRising ? " ↑" : " ↓") : ""}</button></th>`;
}

/**
 * What a whole step takes in modules, by which their times are bars.
 * @param {Node[]} trees
 */
function mostOf(trees) {
  return Math.max(...trees.map((one) => Math.max(one.forward ?? 0, one.backward ?? 0)));
}

/** @param {{node: Node, measures: typeof MEASURES, hasShapes: boolean, most: number, isOpen: boolean, isFlat: boolean, turn: (open: boolean) => void}} properties */
function Line({ node, measures, hasShapes, most, isOpen, isFlat, turn }) {
  const hasInner = node.inner.length > 0 && !isFlat;
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") turn(event.key === "ArrowRight");
  };
  return html`<tr data-module=${node.name}>
    <td style=${{ paddingLeft: `${0.4 + (isFlat ? 0 : node.depth * 1.1)}rem` }} title=${node.name}>
      ${hasInner ? html`<button class="fold" aria-expanded=${isOpen} aria-label=${`${isOpen ? "Fold" : "Unfold"} ${node.name}`} onClick=${() => turn(!isOpen)} onKeyDown=${press}>${isOpen ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}
      ${isFlat ? node.name : node.label}</td>
    <td class="faint">${node.kind}</td>
    ${measures.map((one) => html`<${Figure} measure=${one} node=${node} most=${most} />`)}
    ${hasShapes ? html`<td class="faint">${node.output ? `${node.input} → ${node.output}` : ""}</td>` : null}
  </tr>`;
}

/** @param {{measure: typeof MEASURES[number], node: Node, most: number}} properties */
function Figure({ measure, node, most }) {
  const value = measure.of(node);
  const isTime = measure.key === "forward" || measure.key === "backward";
  const share = isTime && value !== null && most ? Math.round((100 * value) / most) : 0;
  const bar = share ? { background: `linear-gradient(to left, var(--bar) ${share}%, transparent ${share}%)` } : {};
  const isBad = value !== null && !Number.isFinite(value);
  return html`<td class=${`number ${isBad ? "bad" : ""}`} style=${bar}>${measure.key === "flops" && node.isLeast ? "≥ " : ""}${isBad ? String(value) : measure.text(value)}</td>`;
}

/** @param {number | null} value */
function countText(value) {
  if (value === null) return "–";
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"]];
  for (const [size, letter] of units) {
    if (value >= Number(size)) return `${numberText(Number((value / Number(size)).toPrecision(3)))} ${letter}`;
  }
  return numberText(value);
}
