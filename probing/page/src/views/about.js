/** What a process is, above each of its views: how it was started, where it is stuck, how it has ended. */

import { useEffect, useState } from "preact/hooks";
import { linkTo } from "../address.js";
import { useAsked } from "../asking/asked.js";
import { hand } from "../asking/files.js";
import { usePolled } from "../asking/polling.js";
import { query } from "../asking/rows.js";
import { ask, askJson } from "../asking/session.js";
import { secondsText } from "../asking/units.js";
import { html, sentence } from "../html.js";
import { ShownSql, Trouble } from "../parts/messages.js";
import environmentSql from "../sql/environment.sql";

const STUCK_MS = 30_000;

/** @param {{entry: any, isStuck: boolean}} properties */
export function About({ entry, isStuck }) {
  const { endpoint, state, name } = entry;
  const { value, error } = usePolled((signal) => askJson("about", { endpoint }, signal), isStuck ? STUCK_MS : 0, [endpoint, state]);
  const command = value?.command || entry.command;
  return html`<div class="about">
    <div class="line">
      <p class="command faint" title=${command}><code>${shortCommand(command)}</code></p>
      <${Report} of=${endpoint} pid=${entry.pid} />
    </div>
    <${Environment} of=${endpoint} />
    ${state === "dead" ? html`<p class="note" role="status"><strong>${name} has ended.</strong>${" "}
      What you see is its record. <${Problems} all=${value?.problems ?? []} /></p>` : null}
    ${isStuck ? html`<p class="trouble" role="status"><strong>${`${name}: ${state}${sinceText(entry)}.`}</strong>${" "}
      ${value?.doing ? `Its main thread ${value.doing}. ` : ""}<a href=${linkTo({ view: "stacks", of: endpoint })}>Where its threads are</a>${" · "}
      <a href=${linkTo({ view: "doctor", of: endpoint })}>Why it is so: the doctor</a></p>` : null}
    ${state !== "dead" && value?.problems.length ? html`<p class="note"><${Problems} all=${value.problems} /></p>` : null}
    ${error && isStuck ? html`<p class="faint">${error.message}</p>` : null}
  </div>`;
}

/** @param {any} entry A process that does not get on. */
function sinceText({ age_s: age, state }) {
  return age && state === "no step ends" ? `, for ${secondsText(age)} now` : "";
}

/** @param {{of: string, pid: number | null}} properties The run in one file, made when it is wanted. */
function Report({ of, pid }) {
  const asked = useAsked(async (signal) => (await ask("report", { endpoint: of }, signal)).blob());
  useEffect(() => {
    if (asked.value) hand(asked.value, `probing-report-${pid ?? "run"}.html`);
  }, [asked.value]);
  return html`<span class="no-print"><button class="small" onClick=${asked.ask} disabled=${asked.isBusy}
      title="its steps, calls, findings, memory and environment, to attach to an issue; holds names and paths of the run">${asked.isBusy ? "Writing the report …" : "Save a report"}</button>
    <${Trouble} error=${asked.error} /></span>`;
}

/** @param {{of: string}} properties What it runs in, read when it is unfolded. */
function Environment({ of }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class="no-print environment" onToggle=${(/** @type {Event} */ event) => setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open)}>
    <summary class="faint">What it runs: code, arguments, versions, variables</summary>
    ${isOpen ? html`<${Values} of=${of} />` : null}
  </details>`;
}

/** @param {{of: string}} properties */
function Values({ of }) {
  const { value, error, again } = usePolled((signal) => query(of, environmentSql.trim(), { signal }), 0, [of]);
  const [search, setSearch] = useState("");
  if (!value) return error ? html`<${Trouble} error=${error} again=${again} />` : html`<p class="faint">Reading …</p>`;
  const [kind, name, text] = value.columns.map((one) => one.at);
  const words = search.toLowerCase();
  const rows = Array.from({ length: value.length }, (_, row) => [kind(row), name(row), text(row) ?? "–"].map(String))
    .filter((row) => row.join("\n").toLowerCase().includes(words));
  return html`<div>
    <p class="bar"><label>Search <input type="search" value=${search} placeholder="commit, NCCL, seed …"
      onInput=${(/** @type {Event} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></label>
      <span class="faint">${`${rows.length.toLocaleString("en")} of ${value.length.toLocaleString("en")}`}</span></p>
    <div class="answer" tabindex="0" role="region" aria-label="what it runs"><table class="facts"><tbody>
      ${rows.map((row) => html`<tr key=${row.join(" ")}><td class="faint">${row[0]}</td><td>${row[1]}</td><td class="wide">${row[2]}</td></tr>`)}</tbody></table></div>
    <${ShownSql} sql=${environmentSql.trim()} of=${of} />
  </div>`;
}

/** @param {{all: string[]}} properties */
function Problems({ all }) {
  return html`<span>${sentence(sentences(all))}</span>`;
}

/**
 * What is told of a process, one sentence after the other.
 * @param {string[]} all
 */
export function sentences(all) {
  return all.map((one) => `${one[0]?.toUpperCase() ?? ""}${one.slice(1).replace(/([^.!?])$/, "$1.")}`).join(" ");
}

/**
 * A job as it is called; the random number that a launcher gives it where nobody has is not whole.
 * @param {string} job
 */
export function shortJob(job) {
  return /^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(job) ? `${job.slice(0, 8)}…` : job;
}

/**
 * What tells one process from another: its script with what was given to it, without interpreter and folders.
 * @param {string} command
 */
export function shortCommand(command) {
  const words = command.split(" ");
  const script = words.findIndex((word) => word.endsWith(".py"));
  const module = words.indexOf("-m");
  if (script >= 0) return [words[script].split("/").pop(), ...words.slice(script + 1)].join(" ");
  return module >= 0 ? words.slice(module + 1).join(" ") : command;
}
