/** Stacks as boxes, each as wide as often it was seen or as long as it took. */

import { useState } from "preact/hooks";
import { numberText } from "../../asking/units.js";
import { html } from "../../html.js";
import { BoxSearch, HowToMove, useBoxSearch } from "../../parts/box_search.js";
import { Icicle } from "../../parts/icicle.js";

/**
 * @typedef {import("../step/step_boxes.js").Box} Box
 * @typedef {import("../step/step_boxes.js").Boxes} Boxes
 * @typedef {{frame: string, weight: number, inner: Tree[]}} Tree
 */

const COLORS = ["#e69f00", "#56b4e9", "#7fb8a4", "#d9a3c0", "#c9c06a", "#a9b4c2", "#e0996f"];

/** @param {{drawn: Boxes, theme: string, format: (value: number, digits?: number) => string, name: string}} properties */
export function FlameGraph({ drawn, theme, format, name }) {
  const { search, turn, field } = useBoxSearch();
  const [range, setRange] = useState(/** @type {{from: number, to: number} | null} */ (null));
  const told = (/** @type {Box} */ box) => [box.name, box.kind, `${format(box.to - box.from)}, ${shareText(box, drawn.end)}`].filter(Boolean).join(" · ");
  return html`<div>
    <p class="bar no-print"><${BoxSearch} ...${field} placeholder="function or file" />
      <span class="faint">One colour for each file or class.</span> <${HowToMove} /></p>
    <${Icicle} drawn=${drawn} paint=${paint} search=${search} theme=${theme} told=${told} format=${format} name=${name}
      turn=${turn} range=${range ?? { from: 0, to: drawn.end }} setRange=${setRange} />
  </div>`;
}

/**
 * @param {Box} box
 * @param {number} whole
 */
const shareText = (box, whole) => `${numberText((100 * (box.to - box.from)) / whole)} %`;

/** A name and its file or class: no thread, whose name may end so, and no symbol of C++, which has parentheses of its own. */
const PLACED = /^(?!thread \()(.*?) \(([^()]*|\/.*)\)$/;

/** @param {Box} box Its colour: one for each file or class, else for each name. */
function paint(box) {
  let sum = 0;
  for (const letter of box.kind || box.name) sum = (sum * 31 + letter.charCodeAt(0)) % 65_521;
  return COLORS[sum % COLORS.length];
}

/**
 * @param {Tree[]} roots Those beside each other in their order.
 * @returns {Boxes}
 */
export function boxesOf(roots) {
  /** @type {Box[]} */
  const boxes = [];
  let lanes = 0;
  /** @type {[Tree[], number, number][]} */
  const waiting = [[roots, 0, 0]];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const [trees, from, lane] = next;
    let at = from;
    for (const { frame, weight, inner } of trees) {
      const [, name, file] = PLACED.exec(frame) ?? [null, frame, ""];
      boxes.push({ name: String(name), kind: String(file), stage: "", lane, from: at, to: at + weight, isOpen: false, memory: null });
      lanes = Math.max(lanes, lane + 1);
      if (inner.length) waiting.push([inner, at, lane + 1]);
      at += weight;
    }
  }
  boxes.sort((a, b) => a.lane - b.lane || a.from - b.from);
  const end = roots.reduce((sum, one) => sum + one.weight, 0);
  for (const box of boxes) box.words = `${box.name}  ${shareText(box, end)}`;
  return { boxes, lanes, end };
}
