/** What is wrong with a process, on what evidence, and what to do: by its record, or by all rules. */

import { useAsked } from "../asking/asked.js";
import { usePolled } from "../asking/polling.js";
import { askJson } from "../asking/session.js";
import { html, sentence } from "../html.js";
import { AskButton } from "../parts/ask_button.js";
import { Copy } from "../parts/copy.js";
import { noneBy, ShownSql, Trouble } from "../parts/messages.js";

const EVERY_MS = 30_000;

/** @param {{place: import("../address.js").Place, isLive: boolean, pid: number | null, ranks: any[]}} properties */
export function Doctor({ place, isLive, pid, ranks }) {
  const named = (/** @type {any} */ found) => (isLive && pid !== null && place.of.startsWith("/") ? byPid(found, place.of, pid) : found);
  const asked = useAsked((signal) => askJson("doctor", { endpoint: place.of }, signal));
  const job = useAsked((signal) => askJson("doctor", { endpoint: place.of, of_job: true }, signal));
  const { value, error, again } = usePolled(
    (signal) => askJson("findings", { endpoint: place.of }, signal), isLive && !asked.value && !job.value ? EVERY_MS : 0, [place.of],
  );
  return html`<section>
    <h2>Doctor</h2>
    <${AskButton} asked=${asked} word=${asked.value ? "Examine again" : "Examine all"}
      cost=${isLive ? "takes up to 20 s: its threads, its memory, some gradients of its next three steps; changes nothing" : "by its record and how it ended, as it cannot be asked any more"} />
    ${ranks.length ? html`<${AskButton} asked=${job} word=${job.value ? "Examine the job again" : `Examine all ${ranks.length + 1} ranks`}
      cost="the same in all ranks at once, and compares them: who holds up the others, what differs between them" />` : null}
    ${job.value ? html`<h3>All ranks</h3><${Report} report=${job.value} />` : null}
    ${asked.value && ranks.length ? html`<h3>This rank</h3>` : null}
    ${asked.value ? html`<${Report} report=${named(asked.value)} />` : job.value ? null : html`<div>
      <h3>By its record alone</h3>
      <${Trouble} error=${error} again=${again} />
      ${isLive ? html`<p class="faint">What it does now is not in its record: whether it hangs, who holds its memory. Examine all looks at that, too.</p>` : null}
      ${value?.late ? html`<p class="faint">${`There was no time for ${value.late} of its rules.`} <button class="small no-print" onClick=${again}>Look again</button></p>` : null}
      ${value ? html`<${Found} found=${named(value)} />` : error ? null : html`<p class="faint">Reading its record …</p>`}
      ${value?.statements?.length ? html`<${ShownSql} sql=${value.statements} of=${place.of} />` : null}
    </div>`}
  </section>`;
}

/**
 * What was found, with the process called by its number in what to type next.
 * @param {any} found
 * @param {string} of Its run folder.
 * @param {number} pid
 */
function byPid(found, of, pid) {
  const findings = found.findings.map((/** @type {any} */ one) => ({ ...one, next: one.next.replaceAll(of, String(pid)), fix: one.fix.replaceAll(of, String(pid)) }));
  return { ...found, findings };
}

/** @param {{report: any}} properties All that the command says. */
function Report({ report }) {
  const { findings, healthy, not_looked_at: missed, about, steps, seconds } = report;
  return html`<div>
    ${findings.length ? html`<${List} findings=${findings} />` : html`<p><strong>${report.nothing}</strong></p>`}
    <h3>Healthy</h3>
    <p>${healthy.length ? healthy.join(", ") : "Nothing could be judged whole."}</p>
    ${missed.length ? html`<h3>Not looked at</h3>
      <ul>${missed.map((/** @type {any} */ one) => html`<li>${one.rules.join(", ")} <span class="faint">(${one.why})</span></li>`)}</ul>` : null}
    <p class="faint">${`${about}: ${steps.toLocaleString("en")} steps looked at, ${Math.round(seconds)} s`}</p>
  </div>`;
}

/** @param {{found: any}} properties */
export function Found({ found }) {
  return found.findings.length ? html`<${List} findings=${found.findings} />` : html`<p>Found by its record: ${noneBy(found)}.</p>`;
}

/** @param {{findings: any[]}} properties */
function List({ findings }) {
  return html`<ol class="findings">${findings.map((one) => html`<li key=${one.rule}>
    <p><strong>${one.summary}</strong> <span class=${`certainty ${one.certainty}`}>${one.certainty}</span>
      ${one.since_step === null ? null : html`<span class="faint"> since step ${one.since_step.toLocaleString("en")}</span>`}</p>
    <ul>${one.evidence.map((/** @type {string} */ line) => html`<li>${line}</li>`)}</ul>
    ${one.fix ? html`<p>${sentence(one.fix)}</p>` : null}
    ${one.next ? html`<p><code>${one.next}</code> <${Copy} text=${one.next} /></p>` : null}
  </li>`)}</ol>`;
}
