/** Code that is run in a process, and changes to its training: what was done, and the doing of it. */

import { useState } from "preact/hooks";
import { useAsked } from "../../asking/asked.js";
import { usePolled } from "../../asking/polling.js";
import { query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { secondsText } from "../../asking/units.js";
import { html } from "../../html.js";
import { useTyped } from "../../kept.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import actsSql from "../../sql/acts.sql";
import { SecondQuestion } from "./second_question.js";

const LIVE_MS = 5000;

/**
 * What can be done: its name, what it is given, and the request.
 * @type {Record<string, {name: string, given: string, request: (given: string) => any}>}
 */
const ACTIONS = {
  lr: { name: "Multiply the learning rate by", given: "0.5", request: (given) => ({ lr: { scale: Number(given) } }) },
  clip: { name: "Clip the norm of the gradients to", given: "1.0", request: (given) => ({ clip: { max_norm: Number(given) } }) },
  checkpoint: { name: "Write a checkpoint to", given: "checkpoint.pt", request: (given) => ({ checkpoint: { path: given } }) },
  cleanup: { name: "Collect garbage and empty the caches", given: "", request: () => ({ cleanup: {} }) },
  undo: { name: "Undo the last action", given: "", request: () => ({ undo: {} }) },
};

/** @param {{place: import("../../address.js").Place, isLive: boolean, ranks: any[], mayEval: boolean}} properties */
export function Act({ place, isLive, ranks, mayEval }) {
  const of = place.of;
  const [code, setCode] = useTyped(`eval ${of}`, "");
  const [kind, setKind] = useState("lr");
  const [given, setGiven] = useState(ACTIONS.lr.given);
  const ran = useAsked((signal) => askJson("eval", { endpoint: of, code }, signal));
  const acted = useAsked((signal) => askJson("act", { endpoint: of, asked: ACTIONS[kind].request(given) }, signal));
  const done = usePolled((signal) => query(of, actsSql.trim(), { signal }), isLive ? LIVE_MS : 0, [of, ran.value, acted.value]);
  const value = (/** @type {Event} */ event) => /** @type {HTMLInputElement} */ (event.currentTarget).value;
  const choose = (/** @type {string} */ key) => {
    setKind(key);
    setGiven(ACTIONS[key].given);
  };
  const chosen = ACTIONS[kind];
  const isUsable = !chosen.given || (kind === "checkpoint" ? given.trim() !== "" : Number(given) > 0);
  return html`<section>
    <h2>Eval and actions</h2>
    ${mayEval && isLive ? html`
      <h3>Python, between two steps</h3>
      <p><textarea aria-label="Python" rows="4" spellcheck=${false} value=${code} onInput=${(/** @type {Event} */ event) => setCode(value(event))} placeholder="optimizer.param_groups[0]['lr']"></textarea></p>
      <p class="bar"><${SecondQuestion} word="Run it" question="The training is held while this runs, and it can change everything in it. Run it?" isOff=${!code.trim() || ran.isBusy} act=${ran.ask} />
        <span class="faint" role="status">${ran.isBusy ? "waiting for the end of a step …" : ""}</span></p>
      <${Trouble} error=${ran.error} />
      ${ran.value ? html`<${Result} result=${ran.value} />` : null}
      <h3>Actions</h3>
      ${ranks.length ? html`<p class="note">An action on one rank alone would part it from the others: <code>probing -t all act</code> applies it to all at one step.</p>` : html`
        <p class="bar"><select aria-label="Action" value=${kind} onChange=${(/** @type {Event} */ event) => choose(value(event))}>
          ${Object.entries(ACTIONS).map(([key, one]) => html`<option value=${key}>${one.name}</option>`)}</select>
          ${chosen.given ? html`<input aria-label=${chosen.name} value=${given} onInput=${(/** @type {Event} */ event) => setGiven(value(event))} />` : null}
          <${SecondQuestion} word="Apply it" question=${`${chosen.name}${chosen.given ? ` ${given}` : ""}, before the next step?`} isOff=${!isUsable || acted.isBusy} act=${acted.ask} />
          <span class="faint" role="status">${acted.isBusy ? "waiting for the end of a step …" : ""}</span></p>
        <${Trouble} error=${acted.error} />
        ${acted.value ? html`<p role="status">${actText(acted.value)}</p>` : null}`}`
    : html`<p class="note">${isLive ? html`This page only looks. <code>probing web --allow-eval</code> has one that also runs code and acts.` : "It has ended: nothing can be changed in it."}</p>`}
    <h3>What was done</h3>
    <${Trouble} error=${done.error} again=${done.again} />
    ${done.value ? html`<${Done} rows=${done.value} />` : done.error ? null : html`<p class="faint">Reading its record …</p>`}
    <${ShownSql} sql=${actsSql.trim()} of=${of} />
  </section>`;
}

/** @param {{result: any}} properties */
function Result({ result }) {
  const where = result.where === "safe point" ? `at step ${result.step ?? "–"}, the training held for ${secondsText(result.duration_s)}` : `in ${result.where}, ${secondsText(result.duration_s)}`;
  return html`<div role="status">
    ${result.output ? html`<pre class="answer">${result.output}</pre>` : null}
    ${result.value === null ? null : html`<pre class="answer">${result.value}</pre>`}
    ${result.error ? html`<pre class="answer bad">${result.error}</pre>` : null}
    <p class="faint">${where}</p>
    ${result.notes.map((/** @type {string} */ note) => html`<p class="note">${note}</p>`)}
  </div>`;
}

/** @param {any} act */
function actText(act) {
  const changes = act.changes.map((/** @type {any} */ one) => `${one.what}: ${one.before ?? "–"} → ${one.after ?? "–"}`);
  return [`action ${act.number} (${act.name}): ${act.state ?? "waits"}`, ...changes, ...act.notes].join("; ");
}

/** @param {{rows: import("../../asking/rows.js").Rows}} properties */
function Done({ rows }) {
  const at = rows.columns.map((one) => one.at);
  if (rows.length === 0) return html`<p>Nothing on record.</p>`;
  return html`<div class="wide-table"><table class="list">
    <thead><tr><th>when</th><th>what</th><th class="number">step</th><th></th><th>state</th><th>what came of it</th></tr></thead>
    <tbody>${Array.from({ length: rows.length }, (_, row) => {
      const [start, kind, step, what, state, cameOfIt] = at.map((one) => one(row));
      return html`<tr><td>${new Date(Number(start) / 1e6).toLocaleString()}</td><td>${kind}</td><td class="number">${step === null ? "–" : Number(step).toLocaleString("en")}</td>
        <td class="wide"><code>${what}</code></td><td>${state}</td><td class="wide">${cameOfIt}</td></tr>`;
    })}</tbody></table></div>`;
}
