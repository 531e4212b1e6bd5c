/** One step: the calls of its modules over time, and what is open in one that does not end. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { go } from "../address.js";
import { usePolled } from "../asking/polling.js";
import { numbers, query } from "../asking/rows.js";
import { bytesText, secondsText } from "../asking/units.js";
import { html } from "../html.js";
import { Icicle } from "../parts/icicle.js";
import { ShownSql, Trouble } from "../parts/messages.js";
import { boxesOf, callsSql, longest, MEASURES, painter, STEPS_SQL } from "./step_boxes.js";

const LIVE_MS = 5000;
const LONGEST = 10;

/** @param {{place: import("../address.js").Place, isLive: boolean, theme: string}} properties */
export function Step({ place, isLive, theme }) {
  const known = usePolled((signal) => query(place.of, STEPS_SQL, { signal }), isLive ? LIVE_MS : 0, [place.of]);
  const steps = useMemo(() => (known.value ? stepsOf(known.value) : []), [known.value]);
  const asked = /^\d+$/.test(place.part.step ?? "") ? Number(place.part.step) : null;
  const [first, setFirst] = useState(/** @type {number | null} */ (null));
  useEffect(() => {
    if (first === null && steps.length) setFirst((steps.find((one) => one.took !== null) ?? steps[0]).step);
  }, [steps]);
  const step = asked ?? first;
  return html`<section>
    <h2>One step</h2>
    <${Trouble} error=${known.error} />
    ${known.value && steps.length === 0 ? html`<p>No calls of modules are on record.</p>` : null}
    ${step === null ? null : html`<${Choice} step=${step} steps=${steps} of=${place.of} />
      <${Calls} key=${step} step=${step} of=${place.of} theme=${theme}
        isEnded=${steps.find((one) => one.step === step)?.took !== null} />`}
  </section>`;
}

/**
 * @param {import("../asking/rows.js").Rows} rows
 * @returns {{step: number, took: number | null}[]} The newest first.
 */
function stepsOf(rows) {
  const took = numbers(rows, "duration");
  return numbers(rows, "step").map((step, index) => ({ step: step ?? 0, took: took[index] }));
}

/** @param {{step: number, steps: {step: number, took: number | null}[], of: string}} properties */
function Choice({ step, steps, of }) {
  const show = (/** @type {number | undefined} */ other) => () => {
    if (other !== undefined) go({ view: "step", of, part: { step: String(other) } });
  };
  const ended = steps.filter((one) => one.took !== null);
  const slowest = ended.reduce((a, b) => ((b.took ?? 0) > (a?.took ?? -1) ? b : a), ended[0]);
  const open = steps.find((one) => one.took === null);
  const here = steps.find((one) => one.step === step);
  const near = (/** @type {number} */ by) => steps.find((one) => one.step === step + by)?.step;
  const go_ = (/** @type {string} */ word, /** @type {number | undefined} */ other) => html`<button
    onClick=${show(other)} disabled=${other === undefined || other === step}>${word}</button>`;
  return html`<p class="bar">
    <strong>Step ${step.toLocaleString("en")}</strong>
    <span>${here ? (here.took === null ? "in progress" : secondsText(here.took)) : ""}</span>
    ${go_("← before", near(-1))} ${go_("after →", near(1))} ${go_("newest", ended[0]?.step)}
    ${go_(`slowest of ${ended.length}`, slowest?.step)} ${go_("in progress", open?.step)}
  </p>`;
}

/** @param {{step: number, of: string, theme: string, isEnded: boolean}} properties */
function Calls({ step, of, theme, isEnded }) {
  const sql = callsSql(step);
  const { value, error } = usePolled((signal) => query(of, sql, { signal }), isEnded ? 0 : LIVE_MS, [of, sql]);
  const drawn = useMemo(() => (value ? boxesOf(value) : null), [value]);
  if (!drawn) return html`<${Trouble} error=${error} />`;
  return html`<div>
    <${DrawnCalls} drawn=${drawn} theme=${theme} />
    <${ShownSql} sql=${sql} of=${of} />
  </div>`;
}

/** @param {{drawn: import("./step_boxes.js").Boxes, theme: string}} properties */
export function DrawnCalls({ drawn, theme }) {
  const [by, setBy] = useState("stage");
  const [search, setSearch] = useState("");
  const [range, setRange] = useState(/** @type {{from: number, to: number} | null} */ (null));
  const paint = useMemo(() => painter(drawn, by), [drawn, by]);
  const word = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.currentTarget).value;
  if (drawn.boxes.length === 0) return html`<p>None of its calls are on record any more.</p>`;
  return html`<div>
    <p class="bar no-print">
      <label>Search <input type="search" value=${search} onInput=${(/** @type {Event} */ event) => setSearch(word(event))} placeholder="module or class" /></label>
      <label>Colour by <select value=${by} onChange=${(/** @type {Event} */ event) => setBy(word(event))}>
        ${Object.entries(MEASURES).map(([key, one]) => html`<option value=${key}>${one.name}</option>`)}</select></label>
      <span class="faint">Click a box or turn the wheel to zoom, drag to move, double-click for all.</span>
    </p>
    <${Icicle} drawn=${drawn} paint=${paint} search=${search} theme=${theme} told=${(/** @type {import("./step_boxes.js").Box} */ box) => told(box, drawn.end)}
      range=${range ?? { from: 0, to: drawn.end }} setRange=${setRange} />
    <${Longest} drawn=${drawn} />
  </div>`;
}

/**
 * @param {import("./step_boxes.js").Box} box
 * @param {number} end
 * @returns {string} What is told of a box.
 */
function told(box, end) {
  const took = box.to - box.from;
  return [
    box.name, box.kind, box.stage, box.isOpen ? "not ended" : secondsText(took),
    box.isOpen ? "" : `${((100 * took) / end).toPrecision(2)} % of the step`,
    box.memory === null ? "" : `${bytesText(box.memory)} in use at its end`,
  ].filter(Boolean).join(" · ");
}

/** @param {{drawn: import("./step_boxes.js").Boxes}} properties */
function Longest({ drawn }) {
  const found = useMemo(() => longest(drawn, LONGEST), [drawn]);
  return html`<table>
    <caption class="faint">The longest calls, without the calls in them</caption>
    <thead><tr><th>module</th><th>class</th><th>stage</th><th class="number">own time</th><th class="number">whole</th></tr></thead>
    <tbody>${found.map(({ box, own }) => html`<tr>
      <td>${box.name}</td><td>${box.kind}</td><td>${box.stage}</td>
      <td class="number">${box.isOpen ? "open" : secondsText(own)}</td><td class="number">${box.isOpen ? "open" : secondsText(box.to - box.from)}</td>
    </tr>`)}</tbody>
  </table>`;
}
