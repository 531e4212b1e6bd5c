/** One step: the calls of its modules over time, and what is open in one that does not end. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { go } from "../../address.js";
import { useAsked } from "../../asking/asked.js";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { bytesText, numberText, secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { BoxSearch, HowToMove, useBoxSearch } from "../../parts/box_search.js";
import { Icicle } from "../../parts/icicle.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import flopsSql from "../../sql/flops.sql";
import { boxesOf, callKey, callsSql, longest, MEASURES, painter, STAGES, STEPS_SQL } from "./step_boxes.js";

/** A step that is open for longer is told with how long. */
const LONG_S = 10;
const LIVE_MS = 5000;
const LONGEST = 10;

/** So many ranks beside the one that was chosen. */
const MOST_RANKS = 15;

/**
 * @typedef {{endpoint: string, name: string}} Rank
 * @typedef {import("./step_boxes.js").Box} Box
 * @typedef {import("./step_boxes.js").Boxes} Boxes
 */

/** @param {{place: import("../../address.js").Place, isLive: boolean, isStuck: boolean, ageS: number | null, theme: string, ranks: Rank[]}} properties `ageS`: since its last step began. */
export function Step({ place, isLive, isStuck, ageS, theme, ranks }) {
  const known = usePolled((signal) => query(place.of, STEPS_SQL, { signal }), isLive ? LIVE_MS : 0, [place.of]);
  const steps = useMemo(() => (known.value ? stepsOf(known.value) : []), [known.value]);
  const asked = /^\d+$/.test(place.part.step ?? "") ? Number(place.part.step) : null;
  const [first, setFirst] = useState(/** @type {number | null} */ (null));
  useEffect(() => {
    const wanted = steps.find((one) => (one.took === null) === isStuck && (one.hasCalls || isLive)) ?? steps.find((one) => one.hasCalls) ?? steps[0];
    if (first === null && wanted) setFirst(wanted.step);
  }, [steps]);
  const step = asked ?? first;
  return html`<section>
    <h2>One step</h2>
    <${Trouble} error=${known.error} again=${known.again} />
    ${known.value || known.error ? null : html`<p class="faint">Reading its calls …</p>`}
    ${known.value && steps.length === 0 ? html`<p>No calls of modules are on record.</p>` : null}
    ${step === null ? null : html`<${Choice} step=${step} steps=${steps} of=${place.of} isLive=${isLive} ageS=${ageS} />
      <${Calls} key=${step} step=${step} of=${place.of} theme=${theme} isLive=${isLive} ranks=${ranks}
        isEnded=${steps.find((one) => one.step === step)?.took !== null} />`}
  </section>`;
}

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {{step: number, took: number | null, hasCalls: boolean}[]} The newest first.
 */
function stepsOf(rows) {
  const took = numbers(rows, "duration");
  const hasCalls = rows.columns.find((one) => one.name === "has_calls");
  return numbers(rows, "step").map((step, index) => ({ step: step ?? 0, took: took[index], hasCalls: Boolean(hasCalls?.at(index)) }));
}

/** @param {{step: number, steps: {step: number, took: number | null}[], of: string, isLive: boolean, ageS: number | null}} properties */
function Choice({ step, steps, of, isLive, ageS }) {
  const show = (/** @type {number | undefined} */ other) => () => {
    if (other !== undefined) go({ view: "step", of, part: { step: String(other) } });
  };
  const ended = steps.filter((one) => one.took !== null);
  const slowest = ended.reduce((a, b) => ((b.took ?? 0) > (a?.took ?? -1) ? b : a), ended[0]);
  const open = steps.find((one) => one.took === null);
  const here = steps.find((one) => one.step === step);
  const unended = isLive ? "in progress" : "not ended";
  const isLong = isLive && ageS !== null && ageS >= LONG_S;
  const near = (/** @type {number} */ by) => steps.find((one) => one.step === step + by)?.step;
  const go_ = (/** @type {string} */ word, /** @type {number | undefined} */ other) => html`<button
    onClick=${show(other)} disabled=${other === undefined || other === step}>${word}</button>`;
  return html`<p class="bar">
    <strong>Step ${step.toLocaleString("en")}</strong>
    <span>${here ? (here.took === null ? `${unended}${isLong ? ` for ${secondsText(ageS)}` : ""}` : secondsText(here.took)) : ""}</span>
    ${go_("← before", near(-1))} ${go_("after →", near(1))} ${go_("newest", ended[0]?.step)}
    ${go_(`slowest of ${ended.length}`, slowest?.step)} ${go_(unended, open?.step)}
    ${here?.took === null ? html`<span class="faint">drawn up to the last call that is on record; what has not ended is still open</span>` : null}
  </p>`;
}

/** @param {{step: number, of: string, theme: string, isEnded: boolean, isLive: boolean, ranks: Rank[]}} properties */
function Calls({ step, of, theme, isEnded, isLive, ranks }) {
  const sql = callsSql(step);
  const { value, error, again } = usePolled((signal) => query(of, sql, { signal }), isEnded ? 0 : LIVE_MS, [of, sql]);
  const drawn = useMemo(() => (value ? boxesOf(value) : null), [value]);
  const [isWide, setWide] = useState(false);
  const [isWhole, setWhole] = useState(false);
  const others = usePolled(async (signal) => {
    if (!isWide) return [];
    const found = await callsOf(ranks.slice(0, MOST_RANKS), sql, signal);
    setWhole(found.every((one) => one.drawn?.boxes.length && !one.drawn.boxes.some((box) => box.isOpen)));
    return found;
  }, isWide && isLive && !isWhole ? LIVE_MS : 0, [sql, isWide]);
  const flops = useFlops(of, isLive);
  if (!drawn) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<p class="faint">Reading its calls …</p>`;
  return html`<div>
    ${ranks.length ? html`<p class="bar no-print"><label><input type="checkbox" checked=${isWide} onChange=${() => setWide(!isWide)} />
      The same step of ${ranks.length > MOST_RANKS ? `${MOST_RANKS} of ` : ""}${ranks.length} other ${ranks.length > 1 ? "ranks" : "rank"}, each from its own beginning</label>
      ${others.isBusy && isWide ? html`<span class="faint">reading …</span>` : null}</p>` : null}
    <${Trouble} error=${others.error} />
    <${DrawnCalls} drawn=${drawn} others=${(isWide && others.value) || []} flops=${flops} theme=${theme} />
    <${ShownSql} sql=${isLive ? [sql, flopsSql.trim()] : sql} of=${of} />
  </div>`;
}

/**
 * The calls of other ranks; who cannot be asked is told with the reason.
 * @param {Rank[]} ranks
 * @param {string} sql
 * @param {AbortSignal} signal
 * @returns {Promise<{name: string, drawn: Boxes | null, trouble: string}[]>}
 */
async function callsOf(ranks, sql, signal) {
  return Promise.all(ranks.map(async ({ endpoint, name }) => {
    try {
      return { name, drawn: boxesOf(await query(endpoint, sql, { signal })), trouble: "" };
    } catch (error) {
      if (signal.aborted) throw error;
      return { name, drawn: null, trouble: /** @type {Error} */ (error).message };
    }
  }));
}

/**
 * The FLOPs of a call by its model and module, asked for when boxes are to be coloured by them.
 * @param {string} of
 * @param {boolean} isLive
 */
function useFlops(of, isLive) {
  const asked = useAsked(async (signal) => {
    const rows = await query(of, flopsSql.trim(), { signal });
    const [model, module, flops] = rows.columns.map((one) => one.at);
    return new Map(Array.from({ length: rows.length }, (_, row) => /** @type {[string, number]} */ ([callKey(String(model(row)), String(module(row))), Number(flops(row))])));
  });
  return isLive ? asked : null;
}

/**
 * @param {{drawn: Boxes, theme: string, others?: {name: string, drawn: Boxes | null, trouble: string}[],
 *   flops?: import("../../asking/asked.js").Asked<Map<string, number>> | null}} properties
 */
export function DrawnCalls({ drawn, theme, others = [], flops = null }) {
  const [by, setBy] = useState("stage");
  const { search, turn, field } = useBoxSearch();
  const [range, setRange] = useState(/** @type {{from: number, to: number} | null} */ (null));
  const all = useMemo(() => [drawn, ...others.flatMap((one) => one.drawn ?? [])], [drawn, others]);
  const whole = useMemo(() => Math.max(...all.map((one) => one.end)), [all]);
  const paint = useMemo(() => painter(all.flatMap((one) => one.boxes), by, flops?.value ?? null), [all, by, flops?.value]);
  const word = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.currentTarget).value;
  if (drawn.boxes.length === 0) return html`<p>None of its calls are on record any more.</p>`;
  if (all.every(({ boxes }) => boxes.every((box) => box.isOpen && box.stage === "step"))) {
    return html`<p>No call of a module has begun in it: it is, or was, in code before the model, such as that which gets a batch. Its stack says where.</p>`;
  }
  const choose = (/** @type {string} */ key) => {
    setBy(key);
    if (key === "flops" && !flops?.value) flops?.ask();
  };
  const shared = {
    paint, search, theme, range: range ?? { from: 0, to: whole }, setRange, whole,
    told: (/** @type {Box} */ box) => told(box, whole, flops?.value ?? null),
  };
  return html`<div>
    <p class="bar no-print">
      <${BoxSearch} ...${field} placeholder="module or class" />
      <label>Colour by <select value=${by} onChange=${(/** @type {Event} */ event) => choose(word(event))}>
        ${Object.entries(MEASURES).filter(([key]) => key !== "flops" || flops).map(([key, one]) => html`<option value=${key}>${one.name}</option>`)}</select></label>
      <${Key} by=${by} />
      <${HowToMove} />
    </p>
    ${by === "flops" && flops?.isBusy ? html`<p class="faint" role="status">Watching the modules in the next forward pass …</p>` : null}
    <${Trouble} error=${by === "flops" ? flops?.error ?? null : null} />
    <${Icicle} ...${shared} drawn=${drawn} turn=${turn} />
    ${others.map((one) => html`<h3>${one.name}</h3>
      ${one.drawn?.boxes.length ? html`<${Icicle} ...${shared} drawn=${one.drawn} />` : html`<p class="faint">${one.trouble || "No call of this step is on its record: it is not there yet, or long past it."}</p>`}`)}
    <${Longest} drawn=${drawn} />
  </div>`;
}

/** @param {string} stage */
const stageText = (stage) => stage.replaceAll("_", " ");

/** @param {{by: string}} properties What the colours mean. */
function Key({ by }) {
  if (by !== "stage") return html`<span class="scale">little <i></i> much</span>`;
  return html`<span>${["data_wait", "forward", "backward", "optimizer"].map((stage) => html`<span class="key"><i class="dot" style=${{ background: STAGES[stage] }}></i>${stageText(stage)}</span>`)}</span>`;
}

/**
 * @param {Box} box
 * @param {number} end
 * @param {Map<string, number> | null} flops
 * @returns {string} What is told of a box.
 */
function told(box, end, flops) {
  const took = box.to - box.from;
  const number = MEASURES.flops.of(box, flops);
  return [
    box.name, box.kind, stageText(box.stage), box.isOpen ? "not ended" : secondsText(took),
    box.isOpen ? "" : `${numberText((100 * took) / end, 2)} % of the step`,
    box.memory === null ? "" : `${bytesText(box.memory)} in use at its end`,
    number === null || box.isOpen ? "" : `${numberText(number / 1e6)} MFLOP, ${numberText(number / took / 1e9)} GFLOP/s`,
  ].filter(Boolean).join(" · ");
}

/** @param {{drawn: import("./step_boxes.js").Boxes}} properties */
function Longest({ drawn }) {
  const found = useMemo(() => longest(drawn, LONGEST), [drawn]);
  if (found.length === 0) return null;
  return html`<table>
    <caption class="faint">The longest calls, without the calls in them</caption>
    <thead><tr><th>module</th><th>class</th><th>stage</th><th class="number">own time</th><th class="number">whole</th></tr></thead>
    <tbody>${found.map(({ box, own }) => html`<tr>
      <td>${box.name}</td><td>${box.kind}</td><td>${stageText(box.stage)}</td>
      <td class="number">${box.isOpen ? "open" : secondsText(own)}</td><td class="number">${box.isOpen ? "open" : secondsText(box.to - box.from)}</td>
    </tr>`)}</tbody>
  </table>`;
}
