/** The threads of one process, each with its frames and what it waits for. */

import { isLibrary, shortPath } from "../../asking/units.js";
import { html, visible } from "../../html.js";
import { Copy } from "../../parts/copy.js";

/** @param {{trace: any, isShort: boolean}} properties */
export function Threads({ trace, isShort }) {
  return html`<div>
    ${trace.note ? html`<p class="note">${trace.note}</p>` : null}
    <p class="no-print"><${Copy} word="Copy as text" text=${() => trace.threads.map(threadText).join("\n\n")} /></p>
    ${trace.threads.map((/** @type {any} */ thread) => html`<article class="thread" key=${thread.thread_id}>
      <h3>${thread.name} ${thread.is_main ? html`<span class="state quiet">main</span>` : null}</h3>
      <${Waiting} thread=${thread} />
      <${Frames} frames=${thread.frames.map((/** @type {any} */ one) => ({ ...one, is_own: !isLibrary(one.file), lines: one.lineno ? String(one.lineno) : "" }))} isShort=${isShort} />
    </article>`)}
  </div>`;
}

/**
 * @param {any} thread
 * @returns {string} As it can be sent to somebody.
 */
function threadText(thread) {
  const frames = thread.frames.map((/** @type {any} */ one) => `  ${one.func} (${one.file}${one.lineno ? `:${one.lineno}` : ""})`);
  return visible([`${thread.name}${thread.is_main ? " (main)" : ""}${waitText(thread) ? `: ${waitText(thread)}` : ""}`, ...frames].join("\n"));
}

/** @param {{frames: {func: string, file: string, lines: string, is_own: boolean}[], isShort: boolean}} properties The innermost first. */
export function Frames({ frames, isShort }) {
  const shown = frames.map((frame, index) => ({ ...frame, number: index + 1 })).filter((frame) => !isShort || frame.is_own);
  return html`<ol>${shown.map((frame) => html`<li value=${frame.number} class=${frame.is_own ? "own" : ""}>
    <code>${frame.func}</code> <span class="faint" title=${frame.file}>${shortPath(frame.file)}${frame.lines ? `:${frame.lines}` : ""}</span>
  </li>`)}</ol>`;
}

/** @param {{thread: any}} properties */
function Waiting({ thread }) {
  const words = waitText(thread);
  return words ? html`<p>${words}</p>` : null;
}

/**
 * @param {any} thread
 * @returns {string} What it waits for.
 */
function waitText({ awaits, waiting }) {
  const words = awaits ? [awaits.what, awaits.who].filter(Boolean).join(", ") : waiting;
  if (!words) return "";
  const doubt = awaits && !awaits.is_certain ? "it seems to wait for " : "waits for ";
  return `${awaits ? doubt : ""}${words}`;
}
