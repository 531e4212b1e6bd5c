/** What the record of a process shows to be wrong, on what evidence, and what to do. */

import { usePolled } from "../asking/polling.js";
import { askJson } from "../asking/session.js";
import { html } from "../html.js";
import { Trouble, noneBy } from "../parts/messages.js";

const EVERY_MS = 30_000;

/** @param {{place: import("../address.js").Place, isLive: boolean}} properties */
export function Findings({ place, isLive }) {
  const { value, error } = usePolled(
    (signal) => askJson("findings", { endpoint: place.of }, signal), isLive ? EVERY_MS : 0, [place.of],
  );
  return html`<section>
    <h2>Findings</h2>
    <${Trouble} error=${error} />
    ${value ? html`<${Found} found=${value} />` : error ? null : html`<p class="faint">Reading its record …</p>`}
    <p class="note">Only its record was looked at. <code>probing ${place.of} doctor</code> also looks at its
      next steps, its threads and its memory, and says what it did not look at.</p>
  </section>`;
}

/** @param {{found: any}} properties */
export function Found({ found }) {
  if (found.findings.length === 0) {
    return html`<p>Found by its record: ${noneBy(found)}.</p>`;
  }
  return html`<ol class="findings">${found.findings.map((/** @type {any} */ one) => html`<li key=${one.rule}>
    <p><strong>${one.summary}</strong> <span class=${`certainty ${one.certainty}`}>${one.certainty}</span>
      ${one.since_step === null ? null : html`<span class="faint"> since step ${one.since_step.toLocaleString("en")}</span>`}</p>
    <ul>${one.evidence.map((/** @type {string} */ line) => html`<li>${line}</li>`)}</ul>
    <p>${one.fix}</p>
    <p><code>${one.next}</code></p>
  </li>`)}</ol>`;
}
