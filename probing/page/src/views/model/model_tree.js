/**
 * The modules of the models as trees: what is known of each, and of what holds only others.
 *
 * A wrapper (DistributedDataParallel, torch.compile, of checkpoints) holds the module that it wraps. One of a whole
 * model is told before the model by the name of its class; one inside has the name of what it wraps, and another class.
 */

/**
 * @typedef {{key: string, name: string, label: string, model: string, kind: string, depth: number, wrappers: number, inner: Node[],
 *   parameters: number | null, trainable: number | null, parameterBytes: number | null,
 *   calls: number | null, forward: number | null, backward: number | null, gradient: number | null, change: number | null,
 *   outputBytes: number | null, flops: number | null, isLeast: boolean, input: string, output: string}} Node
 * @typedef {import("../../asking/rows.js").Rows} Rows
 * @typedef {{chains: Map<string, Node[]>, roots: Node[]}} Forest `chains`: by model, root and name.
 */

/**
 * @param {Rows | null} record The calls and gradients on record.
 * @param {Rows | null} modules The modules as the process has them.
 * @returns {Node[]} The roots.
 */
export function treesOf(record, modules) {
  /** @type {Forest} */
  const forest = { chains: new Map(), roots: [] };
  for (const rows of [modules, record]) {
    if (!rows) continue;
    const read = reader(rows);
    for (let row = 0; row < rows.length; row++) add(read(row), forest);
  }
  const { roots } = forest;
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
 * @param {Forest} forest
 */
function add(row, forest) {
  const [model, root, module, kind] = ["model", "root", "module", "class"].map(row.text);
  const known = chainAt(forest, model, root, "");
  const isWrapper = module === kind && module !== root && !known.some((one) => one.kind === root) && !chainAt(forest, model, root, module).length;
  const node = nodeAt({ model, root, module: module === root || isWrapper || known.some((one) => one.kind === module) ? "" : module, kind }, forest);
  const put = (/** @type {keyof Node} */ key, /** @type {any} */ value) => {
    if (value !== null && value !== "") Object.assign(node, { [key]: value });
  };
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
 * What is known by one name: the outermost first, which wraps the next.
 * @param {Forest} forest
 * @param {string} model
 * @param {string} root
 * @param {string} module Empty for the root.
 */
const chainAt = ({ chains }, model, root, module) => chains.get(JSON.stringify([model, root, module])) ?? [];

/**
 * The node of a module, with all that it is in.
 * @param {{model: string, root: string, module: string, kind: string}} named `kind`: empty for the innermost.
 * @param {Forest} forest
 * @returns {Node}
 */
function nodeAt({ model, root, module, kind }, forest) {
  const chain = chainAt(forest, model, root, module);
  const last = chain[chain.length - 1];
  const known = kind ? chain.find((one) => one.kind === kind || !one.kind) : last;
  if (known) return Object.assign(known, { kind: known.kind || kind });
  const dot = module.lastIndexOf(".");
  const outer = last ?? (module ? nodeAt({ model, root, module: dot < 0 ? "" : module.slice(0, dot), kind: "" }, forest) : null);
  const own = module ? module.slice(dot + 1) : model || kind || root;
  /** @type {Node} */
  const node = {
    key: JSON.stringify([model, root, module, chain.length]), name: module || kind || root, label: last ? kind : own, model, kind,
    depth: outer ? outer.depth + 1 : 0, wrappers: (outer?.wrappers ?? 0) + (last ? 1 : 0), inner: [],
    parameters: null, trainable: null, parameterBytes: null, calls: null, forward: null, backward: null,
    gradient: null, change: null, outputBytes: null, flops: null, isLeast: false, input: "", output: "",
  };
  forest.chains.set(JSON.stringify([model, root, module]), [...chain, node]);
  (outer?.inner ?? forest.roots).push(node);
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
