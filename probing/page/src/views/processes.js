/** The processes there are and the ranks of jobs: what each does, how fast, and what is wrong. */

import { useState } from "preact/hooks";
import { linkTo } from "../address.js";
import { askJson } from "../asking/session.js";
import { usePolled } from "../asking/polling.js";
import { bytesText, numberText, secondsText } from "../asking/units.js";
import { html } from "../html.js";
import { noneBy, ShownSql } from "../parts/messages.js";
import { Sparkline } from "../parts/sparkline.js";
import { scaleColor } from "../theme.js";
import { sentences, shortCommand, shortJob } from "./about.js";

/**
 * @typedef {{name: string, rank: number | null, job: string | null, host: string,
 *   pid: number | null, state: string, step: number | null, duration_s: number | null,
 *   data_wait_s: number | null, sync_s: number | null, loss: number | string | null,
 *   step_s: number | null, memory_bytes: number | null, is_late: boolean, endpoint: string,
 *   command: string, age_s: number | null, durations: number[], losses: (number | string | null)[]}} Entry
 * @typedef {{endpoint: string, name: string, host: string, step: number | null, command: string, began_s: number, problems: string[]}} Ended
 * @typedef {{label: string, expected: number | null, notes: string[], trouble: string | null,
 *   at_s: number, sql: string, processes: Entry[], ended: Ended[]}} Seen
 */

/** So many are listed one by one; more are cells of a grid. */
const MOST_ROWS = 32;
const MOST_EXAMINED = 8;
/** More that have ended are folded. */
const FEW_ENDED = 5;
const FINDINGS_MS = 30_000;

/** @param {{seen: Seen | null}} properties */
export function Processes({ seen }) {
  const [chosen, choose] = useState("");
  if (!seen) return html`<p class="faint">Looking for processes …</p>`;
  const all = seen.processes;
  if (all.length === 0) {
    return html`<section><p>No process with an agent is there yet: this page waits for one. Start one with
      <code>PROBING=1 python train.py</code>, or put the agent into one that runs:
      <code>probing attach PID</code>.</p><${EndedList} ended=${seen.ended} now=${seen.at_s} /></section>`;
  }
  const isLarge = all.length > MOST_ROWS;
  const one = all.filter((entry) => entry.endpoint === chosen);
  return html`<section>
    <h2>${seen.label === "all" || isMixed(seen) ? "Processes" : seen.label}</h2>
    <p class="summary">${summaryOf(seen)}</p>
    ${isLarge ? html`<${Cells} entries=${all} chosen=${chosen} choose=${choose} />` : null}
    ${isLarge && one.length === 0
      ? html`<p class="faint">Choose a cell to see its figures.</p>`
      : html`<${List} entries=${isLarge ? one : all} />`}
    <${EndedList} ended=${seen.ended} now=${seen.at_s} />
    ${seen.notes.map((note) => html`<p class="note">${note}</p>`)}
    <${ShownSql} sql=${seen.sql} of=${(one[0] ?? all[0]).endpoint} words="The SQL of each row" />
  </section>`;
}

/**
 * Whether there are processes beside the ranks of its one job.
 * @param {Seen} seen
 */
function isMixed({ processes, expected }) {
  return expected !== null && processes.some(({ rank }) => rank === null);
}

/** @param {Seen} seen */
function summaryOf(seen) {
  const { processes, expected, label } = seen;
  /** @type {Record<string, number>} */
  const counts = {};
  for (const { state } of processes) counts[state] = (counts[state] ?? 0) + 1;
  const words = Object.entries(counts).map(([state, number]) => `${number} ${state === "no step ends" ? "in which no step ends" : state}`);
  const ranks = processes.filter(({ rank }) => rank !== null);
  const there = (ranks.length ? ranks : processes).filter(({ state }) => state !== "missing").length;
  const others = processes.length - ranks.length;
  if (!ranks.length) return `${counted(there, "process", "processes")} seen: ${words.join(", ")}`;
  const of = isMixed(seen) ? ` of ${label}` : "";
  const all = expected === null ? counted(there, "rank", "ranks") : `${there} of ${counted(expected, "rank", "ranks")}`;
  const beside = others ? `, and ${counted(others, "other process", "other processes")}` : "";
  return `${all}${of} seen${beside}: ${words.join(", ")}`;
}

/**
 * @param {number} number
 * @param {string} one
 * @param {string} many
 */
function counted(number, one, many) {
  return `${numberText(number)} ${number === 1 ? one : many}`;
}

/** @param {{entries: Entry[]}} properties */
function List({ entries }) {
  const asked = entries.filter((entry) => entry.state !== "missing").slice(0, MOST_EXAMINED);
  const key = asked.map((entry) => entry.endpoint).join("\n");
  const findings = usePolled((signal) => examine(asked, signal), FINDINGS_MS, [key]);
  const isOne = new Set(entries.map((entry) => entry.job).filter((job) => job !== null)).size <= 1;
  return html`<table class="list">
    <thead><tr>
      <th>process</th><th>state</th><th class="number">step</th><th class="number">step began</th>
      <th class="number">loss</th><th></th><th class="number">time per step</th><th></th>
      <th class="number">data wait</th><th class="number">memory</th>
      <th>findings of its record</th>
    </tr></thead>
    <tbody>${entries.map((entry) => html`<${Line} key=${entry.endpoint} entry=${entry} job=${isOne ? null : entry.job} found=${findings.value?.[entry.endpoint]} />`)}</tbody>
  </table>`;
}

/** @param {{ended: Ended[], now: number}} properties Those of this machine whose records are there. */
function EndedList({ ended, now }) {
  if (ended.length === 0) return null;
  return html`<details class="ended" open=${ended.length <= FEW_ENDED}><summary>${counted(ended.length, "ended process", "ended processes")} on record</summary>
    <table class="list"><thead><tr><th>process</th><th class="number">last step</th><th class="number">started</th><th>how it ended</th></tr></thead>
    <tbody>${ended.map((one) => html`<tr key=${one.endpoint}>
      <td><a href=${linkTo({ view: "steps", of: one.endpoint })}><strong>${one.name}</strong></a> <span class="faint">${one.host}</span>
        <span class="command faint" title=${one.command}>${shortCommand(one.command)}</span></td>
      <td class="number">${numberText(one.step)}</td><td class="number">${`${secondsText(Math.max(0, now - one.began_s))} ago`}</td>
      <td class="found faint">${sentences(one.problems) || "no error is on record"}</td></tr>`)}</tbody></table></details>`;
}

/**
 * @param {Entry[]} entries
 * @param {AbortSignal} signal
 * @returns {Promise<Record<string, any>>}
 */
async function examine(entries, signal) {
  /** @type {Record<string, any>} */
  const found = {};
  for (const { endpoint } of entries) {
    try {
      found[endpoint] = await askJson("findings", { endpoint }, signal);
    } catch (error) {
      if (signal.aborted) throw error;
      found[endpoint] = { trouble: /** @type {Error} */ (error).message };
    }
  }
  return found;
}

/** @param {{entry: Entry, job: string | null, found: any}} properties `job`: where those beside it are of others. */
function Line({ entry, job, found }) {
  const who = [entry.host, entry.rank === null ? null : entry.pid].filter(Boolean).join(" ");
  return html`<tr data-endpoint=${entry.endpoint}>
    <td>${entry.state === "missing"
      ? html`<strong>${entry.name}</strong>`
      : html`<a href=${linkTo({ view: "steps", of: entry.endpoint })}><strong>${entry.name}</strong></a>`}
      ${" "}<span class="faint">${who}</span>
      ${entry.command ? html`<span class="command faint" title=${[job, entry.command].filter(Boolean).join(": ")}>${[job && shortJob(job), shortCommand(entry.command)].filter(Boolean).join(": ")}</span>` : null}</td>
    <td><span class=${`state ${kindOf(entry.state)}`}>${entry.state}</span></td>
    <td class="number">${numberText(entry.step)}</td>
    <td class="number">${entry.age_s === null ? "–" : `${secondsText(entry.age_s)} ago`}</td>
    <td class=${`number ${typeof entry.loss === "string" ? "bad" : ""}`}>${numberText(entry.loss)}</td>
    <td><${Sparkline} values=${entry.losses} name="losses of the last steps" /></td>
    <td class="number">${secondsText(entry.step_s)}</td>
    <td><${Sparkline} values=${entry.durations} name="durations of the last steps" /></td>
    <td class="number">${shareText(entry.data_wait_s, entry.duration_s)}</td>
    <td class="number">${bytesText(entry.memory_bytes)}</td>
    <td class="found">${kindOf(entry.state) === "bad" ? html`<a class="finding" href=${linkTo({ view: "stacks", of: entry.endpoint })}>Where its threads are</a><br />` : null}
      <${Found} found=${found} endpoint=${entry.endpoint} /></td>
  </tr>`;
}

/** @param {{found: any, endpoint: string}} properties */
function Found({ found, endpoint }) {
  if (!found) return html`<span class="faint">…</span>`;
  if (found.trouble) return html`<span class="faint" title=${found.trouble}>not looked at</span>`;
  const [first, ...more] = found.findings;
  if (!first) return html`<span class="faint">${noneBy(found)}</span>`;
  return html`<a class="finding" href=${linkTo({ view: "doctor", of: endpoint })}>${first.summary}</a>
    <span class="faint"> ${first.certainty}${more.length ? `, and ${more.length} more` : ""}</span>`;
}

/** @param {string} state */
export function kindOf(state) {
  if (state === "training") return "good";
  if (["idle", "not recorded", "attaching", "seen", "elsewhere"].includes(state)) return "quiet";
  return state === "dead" || state === "missing" ? "gone" : "bad";
}

/**
 * @param {number | null} part
 * @param {number | null} whole
 */
function shareText(part, whole) {
  return part === null || !whole ? "–" : `${Math.round((100 * part) / whole)} %`;
}

/** @type {Record<string, {name: string, of: (entry: Entry) => number | null, text: (value: number | null) => string}>} */
const MEASURES = {
  step_s: { name: "time per step", of: (entry) => entry.step_s, text: secondsText },
  data_wait_s: { name: "data wait", of: (entry) => entry.data_wait_s, text: secondsText },
  sync_s: { name: "wait for ranks", of: (entry) => entry.sync_s, text: secondsText },
  memory_bytes: { name: "memory", of: (entry) => entry.memory_bytes, text: bytesText },
  step: { name: "step", of: (entry) => entry.step, text: numberText },
};

/** @param {KeyboardEvent} event An arrow: the cell beside the one that has the keys, or in the row below or above. */
function goOn(event) {
  const cells = /** @type {HTMLElement[]} */ ([.../** @type {HTMLElement} */ (event.currentTarget).children]);
  const wide = cells.filter((one) => one.offsetTop === cells[0].offsetTop).length;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[event.key];
  if (!by) return;
  event.preventDefault();
  cells[cells.indexOf(/** @type {HTMLElement} */ (event.target)) + by]?.focus();
}

/** @param {{entries: Entry[], chosen: string, choose: (endpoint: string) => void}} properties */
function Cells({ entries, chosen, choose }) {
  const [by, setBy] = useState("step_s");
  const measure = MEASURES[by];
  const values = entries.map(measure.of);
  const known = values.filter((value) => value !== null);
  const least = Math.min(...known);
  const span = Math.max(...known) - least;
  const stop = Math.max(0, entries.findIndex((entry) => entry.endpoint === chosen));
  const pick = (/** @type {Event} */ event) => setBy(/** @type {HTMLSelectElement} */ (event.currentTarget).value);
  return html`<div>
    <p><label>Colour by <select value=${by} onChange=${pick}>
      ${Object.entries(MEASURES).map(([key, one]) => html`<option value=${key}>${one.name}</option>`)}
    </select></label>
    ${known.length ? html` <span class="scale">${measure.text(least)} <i></i> ${measure.text(least + span)}</span>` : html` <span class="faint">None of them has told its ${measure.name} yet.</span>`}
    ${known.length && known.length < entries.length ? html` <span class="faint">${known.length.toLocaleString("en")} of ${entries.length.toLocaleString("en")} have told it; the others have no colour: they have not answered in time, or have no such figure.</span>` : null}</p>
    <div class="cells" role="group" aria-label="processes; the arrows go from one to the next" onKeyDown=${goOn}>${entries.map((entry, index) => {
      const value = values[index];
      const color = value === null ? undefined : scaleColor(span ? (value - least) / span : 0.5);
      const when = entry.is_late ? " when it last answered" : "";
      const title = `${entry.name}: ${entry.state}, ${measure.name} ${measure.text(value)}${when}`;
      const word = ["good", "quiet"].includes(kindOf(entry.state)) ? "" : entry.state[0];
      return html`<button key=${entry.endpoint} title=${title} aria-label=${title}
        aria-pressed=${entry.endpoint === chosen} tabindex=${index === stop ? 0 : -1} style=${color ? { background: color, color: "#fff", textShadow: "0 0 2px #000" } : {}}
        onClick=${() => choose(entry.endpoint)}>${word}</button>`;
    })}</div>
  </div>`;
}
