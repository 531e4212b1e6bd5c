/** The modules as a table: to fold, sort and search, any number of them. */

import { useMemo, useState } from "preact/hooks";
import { bytesText, numberText, secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { VirtualRows } from "../../parts/virtual_rows.js";
import { flat, shownOf } from "./model_tree.js";

/** @typedef {import("./model_tree.js").Node} Node */

/** Of more rows only those that are seen are in the document. */
const MOST = 200;
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

/** @param {{trees: Node[]}} properties */
export function Trees({ trees }) {
  const [search, setSearch] = useState("");
  const [turned, setTurned] = useState(/** @type {Record<string, boolean>} */ ({}));
  const [sort, setSort] = useState({ by: "", isRising: false });
  const all = useMemo(() => flat(trees), [trees]);
  const least = all.length > MOST_OPEN ? OPEN_DEPTH - 1 : OPEN_DEPTH;
  const isOpen = (/** @type {Node} */ node) => turned[node.key] ?? node.depth - node.wrappers < least;
  const value = sort.by === "name" ? (/** @type {Node} */ node) => node.name : MEASURES.find((one) => one.key === sort.by)?.of ?? null;
  const shown = shownOf(trees, { isOpen, search, value, isRising: sort.isRising });
  const fold = (/** @type {boolean} */ open) => setTurned(Object.fromEntries(all.map((node) => [node.key, open])));
  const measures = MEASURES.filter((one) => all.some((node) => one.of(node) !== null));
  const hasShapes = all.some((node) => node.output);
  const most = mostOf(trees);
  const head = html`<tr><${SortHead} by="name" name="module" sort=${sort} setSort=${setSort} /><th>class</th>
    ${measures.map((one) => html`<${SortHead} by=${one.key} name=${one.name} title=${one.title} sort=${sort} setSort=${setSort} isNumber=${true} />`)}
    ${hasShapes ? html`<th>shapes</th>` : null}</tr>`;
  const line = (/** @type {Node} */ node, /** @type {number} */ number) => html`<${Line} key=${node.key} number=${number} node=${node} measures=${measures} hasShapes=${hasShapes} most=${most}
    isOpen=${isOpen(node)} isFlat=${search !== ""} turn=${(/** @type {boolean} */ open) => setTurned({ ...turned, [node.key]: open })} />`;
  return html`<div>
    <p class="bar no-print"><label>Search <input type="search" value=${search} placeholder="module or class"
        onInput=${(/** @type {Event} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></label>
      <button onClick=${() => fold(true)}>Unfold all</button> <button onClick=${() => fold(false)}>Fold all</button>
      <button onClick=${() => setSort({ by: "", isRising: false })} disabled=${!sort.by}>Order of the model</button>
      <span class="faint">${all.length.toLocaleString("en")} modules${search ? `, ${shown.length.toLocaleString("en")} found` : ""}</span></p>
    <${Table} shown=${shown} head=${head} line=${line} />
  </div>`;
}

/** @param {{shown: Node[], head: any, line: (node: Node, number: number) => any}} properties */
function Table({ shown, head, line }) {
  if (shown.length > MOST) {
    return html`<${VirtualRows} length=${shown.length} name="modules" kind="list tree" head=${head}
      row=${(/** @type {number} */ number) => line(shown[number], number)} rest=": search, or fold some" />`;
  }
  return html`<div class="wide-table"><table class="list tree"><thead>${head}</thead><tbody>${shown.map(line)}</tbody></table></div>`;
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

/** @param {{node: Node, number: number, measures: typeof MEASURES, hasShapes: boolean, most: number, isOpen: boolean, isFlat: boolean, turn: (open: boolean) => void}} properties */
function Line({ node, number, measures, hasShapes, most, isOpen, isFlat, turn }) {
  const hasInner = node.inner.length > 0 && !isFlat;
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") turn(event.key === "ArrowRight");
    if (event.key === "ArrowDown" || event.key === "ArrowUp") goOn(/** @type {HTMLElement} */ (event.currentTarget), event.key === "ArrowDown");
    if (event.key.startsWith("Arrow")) event.preventDefault();
  };
  return html`<tr data-module=${node.name} aria-rowindex=${number + 1}>
    <td style=${{ paddingLeft: `${0.4 + (isFlat ? 0 : node.depth * 1.1)}rem` }} title=${node.name}>
      ${hasInner ? html`<button class="fold" aria-expanded=${isOpen} aria-label=${`${isOpen ? "Fold" : "Unfold"} ${node.name}`} onClick=${() => turn(!isOpen)} onKeyDown=${press}>${isOpen ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}
      ${isFlat ? node.name : node.label}</td>
    <td class="faint" title=${node.kind}>${node.kind}</td>
    ${measures.map((one) => html`<${Figure} measure=${one} node=${node} most=${most} />`)}
    ${hasShapes ? html`<td class="faint">${node.output ? `${node.input} → ${node.output}` : ""}</td>` : null}
  </tr>`;
}

/**
 * The next module that holds others, or the one before, has the keys.
 * @param {HTMLElement} button
 * @param {boolean} isDown
 */
function goOn(button, isDown) {
  const all = [...(button.closest("table")?.querySelectorAll("button.fold") ?? [])];
  /** @type {HTMLElement | undefined} */ (all[all.indexOf(button) + (isDown ? 1 : -1)])?.focus();
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
