/** Where the threads of a process, or of all ranks of its job, are, and what each waits for. */

import { useState } from "preact/hooks";
import { go } from "../../address.js";
import { usePolled } from "../../asking/polling.js";
import { askJson } from "../../asking/session.js";
import { html, sentence } from "../../html.js";
import { Trouble } from "../../parts/messages.js";
import { sentences } from "../about.js";
import { Flame } from "./flame.js";
import { Frames, Threads } from "./threads.js";

/** @param {{place: import("../../address.js").Place, theme: string, isLive: boolean, ranks: {endpoint: string}[]}} properties */
export function Stacks({ place, theme, isLive, ranks }) {
  const [round, setRound] = useState(0);
  const [isShort, setShort] = useState(false);
  const form = place.part.form ?? "now";
  const tab = (/** @type {string} */ key, /** @type {string} */ word) => html`<button aria-pressed=${form === key}
    onClick=${() => go({ view: "stacks", of: place.of, part: key === "now" ? {} : { form: key } })}>${word}</button>`;
  return html`<section>
    <h2>Stacks</h2>
    <p class="bar no-print">${tab("now", isLive ? "Now" : "At its end")} ${ranks.length ? tab("ranks", `All ${ranks.length + 1} ranks, equal ones once`) : null} ${tab("samples", "Sampled")}
      ${form === "samples" ? null : html`${isLive ? html`<button onClick=${() => setRound(round + 1)}>Look again</button>` : null}
        <label><input type="checkbox" checked=${isShort} onChange=${() => setShort(!isShort)} /> without frames of libraries</label>`}</p>
    ${form === "samples" ? html`<${Flame} of=${place.of} theme=${theme} />`
      : html`<${Looked} key=${`${form} ${isLive}`} route=${form === "ranks" ? "merged" : "stacks"} of=${place.of} round=${round} isShort=${isShort} />`}
  </section>`;
}

/** @param {{route: string, of: string, round: number, isShort: boolean}} properties */
function Looked({ route, of, round, isShort }) {
  const { value, error, isBusy } = usePolled((signal) => askJson(route, { endpoint: of }, signal), 0, [of, round]);
  return html`<div>
    <p class="faint" role="status">${isBusy ? "looking …" : ""}</p>
    <${Trouble} error=${error} />
    ${!value ? null : value.none ? html`<p class="note">${sentence(sentences([value.none, value.help]))}</p>` : route === "merged" ? html`<${Classes} merged=${value} isShort=${isShort} />` : html`<${Threads} trace=${value} isShort=${isShort} />`}
  </div>`;
}

/** @param {{merged: any, isShort: boolean}} properties */
function Classes({ merged, isShort }) {
  const of = merged.asked.length;
  return html`<div>
    ${merged.classes.map((/** @type {any} */ one) => html`<article class="thread">
      <h3>${one.thread} <span class="state quiet">${ranksText(one.ranks)} (${one.ranks.length} of ${of})</span></h3>
      ${one.waiting.length ? html`<p>${one.waiting.join("; ")}</p>` : null}
      <${Frames} isShort=${isShort} frames=${[...one.frames].reverse().map((/** @type {any} */ frame) => ({ ...frame, lines: frame.linenos.join(", ") }))} />
    </article>`)}
    ${merged.without.map((/** @type {any} */ [rank, why]) => html`<p class="note">${ranksText([rank])}: no stack: ${why}</p>`)}
    ${merged.remarks.map((/** @type {any} */ [rank, why]) => html`<p class="note">${ranksText([rank])}: ${why}</p>`)}
    ${merged.idle_threads ? html`<p class="note">Left out: ${merged.idle_threads} threads of pools without work.</p>` : null}
  </div>`;
}

/**
 * Ranks as people write them: 0-3, 7.
 * @param {(number | string)[]} ranks In order.
 */
export function ranksText(ranks) {
  /** @type {string[]} */
  const parts = [];
  for (let first = 0; first < ranks.length; ) {
    let last = first;
    while (typeof ranks[last] === "number" && ranks[last + 1] === Number(ranks[last]) + 1) last++;
    parts.push(last > first ? `${ranks[first]}-${ranks[last]}` : String(ranks[first]));
    first = last + 1;
  }
  const isNumber = typeof ranks[0] === "number";
  return `${isNumber ? (ranks.length > 1 ? "ranks " : "rank ") : ""}${parts.join(", ")}`;
}
