/** The steps of a process: loss, time by phase, gradient norm, throughput and memory. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { go } from "../../address.js";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { bytesText, numberText, secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import { Plot } from "../../parts/plot.js";
import { PHASES } from "../../theme.js";
import { Beside, useBeside } from "./beside.js";
import { Marks, useMarks } from "./marks.js";
import { besideSql, marksSql, stepsSql } from "./steps_sql.js";

const LIVE_MS = 2000;

/** @param {{place: import("../../address.js").Place, isLive: boolean, theme: string}} properties */
export function Steps({ place, isLive, theme }) {
  const from = bound(place.part.from);
  const to = bound(place.part.to);
  const sql = stepsSql({ from, to });
  const every = isLive && to === null ? LIVE_MS : 0;
  const { value, error, isBusy, again } = usePolled(
    async (signal) => ({ rows: await query(place.of, sql, { signal }), from, to }), every, [place.of, sql],
  );
  const drawn = useMemo(() => (value ? curvesOf(value.rows) : null), [value]);
  const marks = useMarks(place.of, every > 0, value);
  const beside = useBeside(place.of, every > 0, value);
  const [pointed, setPointed] = useState(/** @type {number | null} */ (null));
  const zoom = (/** @type {number | null} */ first, /** @type {number | null} */ last) => {
    /** @type {Record<string, string>} */
    const part = {};
    if (first !== null) part.from = String(first);
    if (last !== null) part.to = String(last);
    go({ view: "steps", of: place.of, part });
  };
  useKeys(drawn, from, to, zoom);
  return html`<section>
    <h2>Steps</h2>
    <${Trouble} error=${error} again=${again} />
    <${Marks} marks=${marks} step=${pointed} width=${drawn ? Math.max(drawn.width, (drawn.last - drawn.first) / 200) : 1} />
    ${drawn ? html`<${DrawnSteps} drawn=${drawn} zoom=${zoom} isWhole=${from === null && to === null} theme=${theme} marks=${marks} pointed=${setPointed} beside=${beside} />` : null}
    ${!drawn && isBusy ? html`<p class="faint">Reading its steps …</p>` : null}
    <${ShownSql} sql=${[sql, marksSql({ from, to }), besideSql({ from, to })]} of=${place.of} />
  </section>`;
}

/** @param {string | undefined} text */
function bound(text) {
  return text !== undefined && /^-?\d+$/.test(text) ? Number(text) : null;
}

/**
 * The keys: `0` shows all, `+` and `-` zoom, the arrows move.
 * @param {Drawn | null} drawn
 * @param {number | null} from
 * @param {number | null} to
 * @param {(from: number | null, to: number | null) => void} zoom
 */
function useKeys(drawn, from, to, zoom) {
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (/** @type {HTMLElement} */ (event.target).closest("input, select, textarea, .cm-editor")) return;
      if (event.key === "0") return zoom(null, null);
      if (!drawn?.length) return;
      const low = from ?? drawn.first;
      const high = to ?? drawn.last;
      const quarter = Math.max(1, Math.round((high - low) / 4));
      const moves = /** @type {Record<string, [number, number]>} */ ({
        "+": [quarter, -quarter], "-": [-2 * quarter, 2 * quarter],
        ArrowLeft: [-quarter, -quarter], ArrowRight: [quarter, quarter],
      });
      const move = moves[event.key];
      if (!move || low + move[0] >= high + move[1]) return;
      event.preventDefault();
      zoom(low + move[0], high + move[1]);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [drawn, from, to]);
}

/**
 * @typedef {{x: (number | null)[], length: number, first: number, last: number, steps: number,
 *   width: number, lost: number, rows: import("../../asking/rows.js").Rows}} Drawn
 */

/**
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {Drawn}
 */
export function curvesOf(rows) {
  const x = numbers(rows, "step");
  const sum = (/** @type {string} */ name) => numbers(rows, name).reduce((all, one) => (all ?? 0) + (one ?? 0), 0) ?? 0;
  const width = numbers(rows, "width")[0] ?? 1;
  return {
    x, rows, width, length: rows.length, steps: sum("steps"), lost: sum("not_finite"),
    first: numbers(rows, "first_step")[0] ?? 0, last: numbers(rows, "last_step").pop() ?? 0,
  };
}

/**
 * The plots; without `zoom` each zooms into what is drawn.
 * @param {{drawn: Drawn, zoom?: (from: number | null, to: number | null) => void, isWhole: boolean, theme: string,
 *   marks?: import("./marks.js").Mark[], pointed?: (step: number | null) => void, beside?: import("../../asking/rows.js").Rows | null}} properties
 */
export function DrawnSteps({ drawn, zoom, isWhole, theme, marks, pointed, beside = null }) {
  if (drawn.length === 0) return html`<p>No step that has ended is on record here. <button onClick=${() => zoom?.(null, null)} hidden=${isWhole}>Show all</button></p>`;
  const shared = { x: drawn.x, group: "steps", zoom, reset: () => zoom?.(null, null), theme, marks, pointed };
  const each = drawn.width > 1 ? `each point ${drawn.width.toLocaleString("en")} steps: mean, with least and most` : "each point a step";
  return html`<div>
    <p class="summary">${`${drawn.steps.toLocaleString("en")} steps on record, ${drawn.first.toLocaleString("en")} to ${drawn.last.toLocaleString("en")}; ${each}.`}
      ${drawn.lost ? html`<strong class="bad"> The loss was not finite in ${drawn.lost.toLocaleString("en")} of them.</strong>` : null}
      <button onClick=${() => zoom?.(null, null)} hidden=${isWhole}>Show all</button></p>
    <p class="faint no-print" hidden=${!zoom}>Drag to zoom, double-click or <kbd>0</kbd> for all, <kbd>+</kbd> <kbd>-</kbd> <kbd>←</kbd> <kbd>→</kbd> to move.</p>
    <div class="plots">
    <${Loss} ...${shared} drawn=${drawn} />
    <${Phases} ...${shared} drawn=${drawn} />
    <${Measure} ...${shared} drawn=${drawn} column="duration" name="Time per step" color="#009e73" format=${secondsText} />
    <${Measure} ...${shared} drawn=${drawn} column="allocated_bytes" name="Memory at the end of a step" color="#d55e00" format=${bytesText} isBinary=${true} />
    <${Measure} ...${shared} drawn=${drawn} column="grad_norm" name="Norm of the gradients" color="#8a6fb0" format=${numberText} />
    <${Measure} ...${shared} drawn=${drawn} column="lr" name="Learning rate" color="#e69f00" format=${numberText} />
    <${Throughput} ...${shared} drawn=${drawn} />
    <${Measure} ...${shared} drawn=${drawn} column="mfu" name="Model FLOPs utilization" color="#cc79a7" format=${percentText} />
    ${beside ? html`<${Beside} ...${shared} rows=${beside} />` : null}
    </div>
  </div>`;
}

/** @param {any} properties In tokens, or in samples where no tokens are counted. */
function Throughput(properties) {
  const what = numbers(properties.drawn.rows, "avg_tokens_per_s").some((one) => one !== null) ? "tokens" : "samples";
  return html`<${Measure} ...${properties} column=${`${what}_per_s`} name=${`Throughput, ${what}/s`} color="#56b4e9" format=${numberText} />`;
}

/** @type {(value: number | null, digits?: number) => string} */
const percentText = (value, digits) => (value === null ? "–" : `${numberText(value * 100, digits)} %`);

/** A loss that has been so many times what it is in the middle hides all others on an even scale. */
const FAR = 1e4;

/** @param {import("../../asking/rows.js").Rows} rows */
function isFarApart(rows) {
  const known = numbers(rows, "max_loss").filter((one) => one !== null).sort((a, b) => a - b);
  return known.length > 2 && known[known.length - 1] > FAR * known[Math.floor(known.length / 2)];
}

/** @param {any} properties The loss, on a scale of powers of ten if wanted. */
function Loss(properties) {
  const [chosen, setLog] = useState(/** @type {boolean | null} */ (null));
  const least = useMemo(() => Math.min(...numbers(properties.drawn.rows, "min_loss").filter((one) => one !== null)), [properties.drawn]);
  const isLog = chosen ?? isFarApart(properties.drawn.rows);
  const turn = least > 0 && Number.isFinite(least)
    ? html`<button class="small no-print" aria-pressed=${isLog} onClick=${() => setLog(!isLog)}>log</button>` : null;
  return html`<${Measure} ...${properties} column="loss" name="Loss" color="#0072b2" format=${numberText} isLog=${isLog && turn !== null} extra=${turn} />`;
}

/** @param {any} properties */
function Measure({ drawn, column, name, color, format, ...shared }) {
  const curves = useMemo(() => {
    const values = numbers(drawn.rows, `avg_${column}`);
    const edges = drawn.width > 1
      ? { low: numbers(drawn.rows, `min_${column}`), high: numbers(drawn.rows, `max_${column}`) } : {};
    return [{ label: drawn.width > 1 ? "mean" : name.toLowerCase(), color, values, ...edges }];
  }, [drawn]);
  if (curves[0].values.every((/** @type {number | null} */ value) => value === null)) return null;
  const extra = shared.extra ?? seldomText(curves[0].values);
  return html`<${Plot} ...${shared} name=${name} curves=${curves} format=${format} extra=${extra} />`;
}

/**
 * That a measure is known of few of the points, as the recorder takes it only where there is time for it.
 * @param {(number | null)[]} values
 */
function seldomText(values) {
  const known = values.filter((value) => value !== null).length;
  if (2 * known >= values.length) return null;
  return html`<span class="faint">${`measured at ${known.toLocaleString("en")} of ${values.length.toLocaleString("en")} points: as often as the recorder's budget allows`}</span>`;
}

/** @param {any} properties */
function Phases({ drawn, ...shared }) {
  const curves = useMemo(
    () => PHASES.map(([key, label, color]) => ({ label, color, values: numbers(drawn.rows, `${key}_s`) }))
      .filter((curve) => curve.values.some((value) => value)),
    [drawn],
  );
  if (curves.length === 0) return null;
  return html`<${Plot} ...${shared} name="Where a step's time goes" curves=${curves} isStacked=${true} height=${200} format=${secondsText} />`;
}

