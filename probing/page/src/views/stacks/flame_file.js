/** A flame graph of what stands in a file: the stacks of a profile, in the order of their names. */

import { useMemo } from "preact/hooks";
import { secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { boxesOf, FlameGraph } from "./flame_graph.js";

/** Merged stacks: of each node its parent or -1, the number of its name, and its weight, which times `scale` is in seconds.
 * @typedef {{names: string[], parents: number[], frames: number[], weights: number[], scale: number}} Stacks */

/** @param {{stacks: Stacks, theme: string}} properties */
export function FlameFile({ stacks, theme }) {
  const drawn = useMemo(() => boxesOf(treesOf(stacks)), [stacks]);
  const format = (/** @type {number} */ value, digits = 4) => secondsText(value * stacks.scale, digits);
  return html`<${FlameGraph} drawn=${drawn} theme=${theme} format=${format} name="stacks by how long they took" />`;
}

/**
 * @param {Stacks} stacks
 * @returns {import("./flame_graph.js").Tree[]} The number 2 before the number 10.
 */
function treesOf({ names, parents, frames, weights }) {
  const nodes = frames.map((name, node) => ({ frame: names[name], weight: weights[node], inner: [] }));
  /** @type {import("./flame_graph.js").Tree[]} */
  const roots = [];
  parents.forEach((parent, node) => (parent < 0 ? roots : /** @type {any[]} */ (nodes[parent].inner)).push(nodes[node]));
  const { compare } = new Intl.Collator("en", { numeric: true });
  for (const list of [roots, ...nodes.map((one) => /** @type {any[]} */ (one.inner))]) list.sort((a, b) => compare(a.frame, b.frame));
  return roots;
}
