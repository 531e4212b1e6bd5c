/** Where the memory is: over the steps on record, by who holds it now, and each allocation that was recorded. */

import { useMemo } from "preact/hooks";
import { useAsked } from "../../asking/asked.js";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { bytesText } from "../../asking/units.js";
import { html } from "../../html.js";
import { AskButton } from "../../parts/ask_button.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import { Plot } from "../../parts/plot.js";
import allocationsSql from "../../sql/allocations.sql";
import stepsSql from "../../sql/memory_steps.sql";
import tensorsSql from "../../sql/tensors.sql";
import { Fit } from "./fit.js";
import { Holders, Tensors } from "./tensors.js";

const LIVE_MS = 10_000;
/** @type {[string, string, string][]} */
const PHASES = [
  ["before_forward", "before the forward pass", "#009e73"], ["after_forward", "after the forward pass", "#56b4e9"],
  ["after_backward", "after the backward pass", "#d55e00"], ["after_step", "at the end", "#8a6fb0"],
  ["peak", "peak", "#cc79a7"], ["reserved", "reserved by the allocator", "#9a9a9a"],
];

/** @param {{place: import("../../address.js").Place, isLive: boolean, pid: number | null, theme: string}} properties */
export function Memory({ place, isLive, pid, theme }) {
  const of = place.of;
  const steps = usePolled((signal) => query(of, stepsSql.trim(), { signal }), isLive ? LIVE_MS : 0, [of]);
  const looked = useAsked((signal) => query(of, tensorsSql.trim(), { signal }));
  const holders = useAsked((signal) => askJson("holders", { endpoint: of }, signal));
  const fit = useAsked((signal) => askJson("fit", { endpoint: of }, signal));
  const events = usePolled((signal) => query(of, allocationsSql.trim(), { signal }), 0, [of]);
  return html`<section>
    <h2>Memory</h2>
    <${Trouble} error=${steps.error} again=${steps.again} />
    ${steps.value ? html`<${Phases} rows=${steps.value} theme=${theme} />` : steps.error ? null : html`<p class="faint">Reading its record …</p>`}
    <h3>By who holds it</h3>
    <${AskButton} asked=${looked} word="Look at the next step" isOff=${!isLive}
      cost="holds the training for some tens of milliseconds, at the end of a step and before a backward pass" />
    ${looked.value ? html`<${Tensors} rows=${looked.value} />` : null}
    <${AskButton} asked=${holders} word="Who holds the largest" isOff=${!isLive}
      cost="searches a little at the end of each step, for 20 s at most" />
    ${holders.value ? html`<${Holders} found=${holders.value} />` : null}
    <h3>What fits</h3>
    <${AskButton} asked=${fit} word="The largest batch that fits" isOff=${!isLive}
      cost="takes up to a minute: steps of a copy of the model without data, with the training held for some seconds in all" />
    ${fit.value ? html`<${Fit} found=${fit.value} />` : null}
    <h3>Each allocation</h3>
    <${Events} rows=${events.value} error=${events.error} pid=${isLive ? pid : null} theme=${theme} />
    <${ShownSql} sql=${[stepsSql, tensorsSql, allocationsSql].map((one) => one.trim())} of=${of} words="The SQL of this view" />
  </section>`;
}

/**
 * Rows by the device that they are of.
 * @param {import("../../asking/rows.js").Rows} rows
 * @param {string[]} names The columns that are read.
 * @returns {Map<string, Record<string, (number | null)[]>>}
 */
function byDevice(rows, names) {
  const columns = names.map((name) => numbers(rows, name));
  const device = rows.columns.find((one) => one.name === "device");
  /** @type {Map<string, Record<string, (number | null)[]>>} */
  const found = new Map();
  for (let row = 0; row < rows.length; row++) {
    const key = String(device?.at(row) ?? "");
    const own = found.get(key) ?? Object.fromEntries(names.map((name) => [name, []]));
    names.forEach((name, index) => own[name].push(columns[index][row]));
    found.set(key, own);
  }
  return found;
}

/** @param {{rows: import("../../asking/rows.js").Rows, theme: string}} properties */
function Phases({ rows, theme }) {
  const drawn = useMemo(() => [...byDevice(rows, ["step", "width", ...PHASES.map(([key]) => key)])].map(([device, own]) => ({
    device, x: own.step, width: own.width[0] ?? 1,
    curves: PHASES.map(([key, label, color]) => ({ label, color, values: own[key] }))
      .filter((curve) => curve.values.some((value) => value !== null)),
  })), [rows]);
  if (drawn.length === 0) return html`<p>No figures of memory are on record.</p>`;
  return html`<div>${drawn.map(({ device, x, width, curves }) => html`<${Plot} key=${device} x=${x} curves=${curves} height=${260}
    name=${`${device === "cpu" ? "Memory of the process" : `Memory of ${device}`} in the phases of a step${width > 1 ? `, the most of ${width.toLocaleString("en")} steps` : ""}`}
    format=${bytesText} isBinary=${true} theme=${theme} />`)}</div>`;
}

/** @param {{rows: import("../../asking/rows.js").Rows | null, error: Error | null, pid: number | null, theme: string}} properties `pid`: of a process that runs. */
function Events({ rows, error, pid, theme }) {
  const drawn = useMemo(() => (rows ? [...byDevice(rows, ["at_ms", "in_use", "events"])] : []), [rows]);
  if (error) return html`<p class="note">${error.message} ${/** @type {{help?: string}} */ (error).help ?? ""}</p>`;
  if (!rows) return html`<p class="faint">Reading what was recorded …</p>`;
  if (drawn.length === 0) return html`<p class="note">None were recorded.${pid === null ? "" : html` <code>${`probing ${pid} memory --record on`}</code> records them; every allocation costs time then.`}</p>`;
  return html`<div>${drawn.map(([device, own]) => html`<${Plot} key=${device} x=${own.at_ms} xName="ms" height=${220}
    curves=${[{ label: "in use since the recording began", color: "#d55e00", values: own.in_use }]}
    name=${`${device}: ${own.events[0]?.toLocaleString("en")} events of the last recording, over milliseconds`} format=${bytesText} isBinary=${true} theme=${theme} />`)}</div>`;
}
