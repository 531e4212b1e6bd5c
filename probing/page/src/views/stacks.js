/** Where the threads of a process are, and what each waits for. */

import { useState } from "preact/hooks";
import { usePolled } from "../asking/polling.js";
import { askJson } from "../asking/session.js";
import { html } from "../html.js";
import { Trouble } from "../parts/messages.js";

/** @param {{place: import("../address.js").Place}} properties */
export function Stacks({ place }) {
  const [round, setRound] = useState(0);
  const { value, error, isBusy } = usePolled(
    (signal) => askJson("stacks", { endpoint: place.of }, signal), 0, [place.of, round],
  );
  return html`<section>
    <h2>Stacks</h2>
    <p class="bar"><button onClick=${() => setRound(round + 1)} disabled=${isBusy}>Look again</button>
      <span class="faint">${isBusy ? "looking …" : ""}</span></p>
    <${Trouble} error=${error} />
    ${value ? html`<${Threads} trace=${value} />` : null}
  </section>`;
}

/** @param {{trace: any}} properties */
function Threads({ trace }) {
  return html`<div>
    ${trace.note ? html`<p class="note">${trace.note}</p>` : null}
    ${trace.threads.map((/** @type {any} */ thread) => html`<article class="thread" key=${thread.thread_id}>
      <h3>${thread.name} ${thread.is_main ? html`<span class="state quiet">main</span>` : null}</h3>
      <${Waiting} thread=${thread} />
      <ol>${thread.frames.map((/** @type {any} */ frame) => html`<li>
        <code>${frame.func}</code> <span class="faint">${frame.file}:${frame.lineno}</span>
      </li>`)}</ol>
    </article>`)}
  </div>`;
}

/** @param {{thread: any}} properties */
function Waiting({ thread }) {
  const { awaits, waiting } = thread;
  const words = awaits ? [awaits.what, awaits.who].filter(Boolean).join(", ") : waiting;
  if (!words) return null;
  const doubt = awaits && !awaits.is_certain ? "it seems to wait for" : "waits for";
  return html`<p>${awaits ? doubt : "waiting:"} ${words}</p>`;
}
