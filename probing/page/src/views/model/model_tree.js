/** The modules of the models as trees: what is known of each, and of what holds only others. */

/**
 * @typedef {{key: string, name: string, label: string, model: string, kind: string, depth: number, inner: Node[],
 *   parameters: number | null, trainable: number | null, parameterBytes: number | null,
 *   calls: number | null, forward: number | null, backward: number | null, gradient: number | null, change: number | null,
 *   outputBytes: number | null, flops: number | null, isLeast: boolean, input: string, output: string}} Node
 * @typedef {import("../../asking/rows.js").Rows} Rows
 */

/**
 * @param {Rows | null} record The calls and gradients on record.
 * @param {Rows | null} modules The modules as the process has them.
 * @returns {Node[]} The roots.
 */
export function treesOf(record, modules) {
  /** @type {Map<string, Node>} */
  const nodes = new Map();
  /** @type {Node[]} */
  const roots = [];
  for (const rows of [modules, record]) {
    if (!rows) continue;
    const read = reader(rows);
    for (let row = 0; row < rows.length; row++) add(read(row), nodes, roots);
  }
  for (const root of roots) {
    inOrder(root);
    addUp(root);
  }
  return roots;
}

/** @param {Rows} rows */
function reader(rows) {
  const columns = new Map(rows.columns.map((one) => [one.name, one.at]));
  return (/** @type {number} */ row) => {
    const at = (/** @type {string} */ name) => columns.get(name)?.(row) ?? null;
    const number = (/** @type {string} */ name) => (at(name) === null ? null : Number(at(name)));
    const text = (/** @type {string} */ name) => String(at(name) ?? "");
    return { at, number, text };
  };
}

/**
 * @param {ReturnType<ReturnType<typeof reader>>} row
 * @param {Map<string, Node>} nodes
 * @param {Node[]} roots
 */
function add(row, nodes, roots) {
  const [model, root, module] = [row.text("model"), row.text("root"), row.text("module")];
  const node = nodeAt(model, root, module === root ? "" : module, nodes, roots);
  const put = (/** @type {keyof Node} */ key, /** @type {any} */ value) => {
    if (value !== null && value !== "") Object.assign(node, { [key]: value });
  };
  put("kind", row.text("class"));
  put("input", row.text("input_shapes"));
  put("output", row.text("output_shapes"));
  put("isLeast", row.at("flops_is_lower_bound"));
  const numbers = /** @type {[keyof Node, string][]} */ ([
    ["parameters", "parameters"], ["trainable", "trainable"], ["parameterBytes", "parameter_bytes"],
    ["calls", "calls"], ["forward", "forward_s"], ["backward", "backward_s"], ["gradient", "gradient_norm"],
    ["change", "update_norm"], ["outputBytes", "output_bytes"], ["flops", "flops"],
  ]);
  for (const [key, column] of numbers) put(key, row.number(column));
}

/**
 * The node of a module, with all that it is in.
 * @param {string} model
 * @param {string} root
 * @param {string} module Empty for the root.
 * @param {Map<string, Node>} nodes
 * @param {Node[]} roots
 * @returns {Node}
 */
function nodeAt(model, root, module, nodes, roots) {
  const key = JSON.stringify([model, root, module]);
  const known = nodes.get(key);
  if (known) return known;
  const dot = module.lastIndexOf(".");
  const outer = module ? nodeAt(model, root, dot < 0 ? "" : module.slice(0, dot), nodes, roots) : null;
  /** @type {Node} */
  const node = {
    key, name: module || root, label: module ? module.slice(dot + 1) : model || root, model, kind: "", depth: outer ? outer.depth + 1 : 0, inner: [],
    parameters: null, trainable: null, parameterBytes: null, calls: null, forward: null, backward: null,
    gradient: null, change: null, outputBytes: null, flops: null, isLeast: false, input: "", output: "",
  };
  nodes.set(key, node);
  (outer?.inner ?? roots).push(node);
  return node;
}

/**
 * Layers that are called by their numbers come in the order of these: a record may begin in the middle of a step.
 * @param {Node} node
 */
function inOrder(node) {
  if (node.inner.every((one) => /^\d+$/.test(one.label))) node.inner.sort((a, b) => Number(a.label) - Number(b.label));
  node.inner.forEach(inOrder);
}

/**
 * Times of what is never called itself, and norms, are those of what is in it.
 * @param {Node} node
 */
function addUp(node) {
  node.inner.forEach(addUp);
  const sum = (/** @type {"forward" | "backward"} */ key) => {
    const known = node.inner.map((one) => one[key]).filter((one) => one !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  };
  node.forward ??= sum("forward");
  node.backward ??= sum("backward");
  for (const key of /** @type {("gradient" | "change")[]} */ (["gradient", "change"])) {
    const known = [node[key], ...node.inner.map((one) => one[key])].filter((one) => one !== null);
    node[key] = known.length ? Math.hypot(...known) : null;
  }
}

/**
 * The nodes that are shown, in their order.
 * @param {Node[]} roots
 * @param {{isOpen: (node: Node) => boolean, search: string, value: ((node: Node) => number | string | null) | null, isRising: boolean}} how
 * @returns {Node[]}
 */
export function shownOf(roots, { isOpen, search, value, isRising }) {
  const words = search.toLowerCase();
  const isMeant = (/** @type {Node} */ node) => `${node.name}\n${node.kind}`.toLowerCase().includes(words);
  if (words) return sorted(flat(roots).filter(isMeant), value, isRising);
  /** @type {Node[]} */
  const shown = [];
  const walk = (/** @type {Node[]} */ nodes) => {
    for (const node of sorted(nodes, value, isRising)) {
      shown.push(node);
      if (isOpen(node)) walk(node.inner);
    }
  };
  walk(roots);
  return shown;
}

/**
 * @param {Node[]} roots
 * @returns {Node[]} All of them.
 */
export function flat(roots) {
  return roots.flatMap((node) => [node, ...flat(node.inner)]);
}

/**
 * @param {Node[]} nodes
 * @param {((node: Node) => number | string | null) | null} value
 * @param {boolean} isRising
 */
function sorted(nodes, value, isRising) {
  if (!value) return nodes;
  const sign = isRising ? 1 : -1;
  return [...nodes].sort((a, b) => {
    const [one, other] = [value(a), value(b)];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    if (typeof one === "string") return sign * one.localeCompare(String(other));
    return sign * (one - Number(other));
  });
}
