/** What a process is, above each of its views: how it was started, where it is stuck, how it has ended. */

import { linkTo } from "../address.js";
import { usePolled } from "../asking/polling.js";
import { askJson } from "../asking/session.js";
import { html } from "../html.js";

const STUCK_MS = 30_000;

/** @param {{entry: any, isStuck: boolean}} properties */
export function About({ entry, isStuck }) {
  const { endpoint, state, name } = entry;
  const { value, error } = usePolled((signal) => askJson("about", { endpoint }, signal), isStuck ? STUCK_MS : 0, [endpoint, state]);
  const command = value?.command || entry.command;
  return html`<div class="about">
    ${command ? html`<p class="command faint" title=${command}><code>${shortCommand(command)}</code></p>` : null}
    ${state === "dead" ? html`<p class="note" role="status"><strong>${name} has ended.</strong>${" "}
      What you see is its record. <${Problems} all=${value?.problems ?? []} /></p>` : null}
    ${isStuck ? html`<p class="trouble" role="status"><strong>${`${name}: ${state}.`}</strong>${" "}
      ${value?.doing ? `Its main thread: ${value.doing}. ` : ""}<a href=${linkTo({ view: "stacks", of: endpoint })}>Where its threads are</a></p>` : null}
    ${state !== "dead" && value?.problems.length ? html`<p class="note"><${Problems} all=${value.problems} /></p>` : null}
    ${error && isStuck ? html`<p class="faint">${error.message}</p>` : null}
  </div>`;
}

/** @param {{all: string[]}} properties */
function Problems({ all }) {
  return html`<span>${all.join(" ")}</span>`;
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
