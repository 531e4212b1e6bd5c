/** A button that asks, with what its question costs the training. */

import { html } from "../html.js";
import { Trouble } from "./messages.js";

/** @param {{asked: import("../asking/asked.js").Asked<any>, word: string, cost: string, isOff?: boolean}} properties */
export function AskButton({ asked, word, cost, isOff = false }) {
  return html`<div>
    <p class="bar no-print">
      <button class="main" onClick=${asked.ask} disabled=${asked.isBusy || isOff}>${word}</button>
      ${asked.isBusy ? html`<button onClick=${asked.giveUp}>Cancel</button>` : null}
      <span class="faint" role="status">${asked.isBusy ? "looking …" : isOff ? "It has ended, and cannot be asked any more." : cost}</span>
    </p>
    <${Trouble} error=${asked.error} />
  </div>`;
}
