/** What a person is told beside the answers: errors, notes, and the SQL that was run. */

import { html } from "../html.js";

/** @param {{error: Error | null}} properties */
export function Trouble({ error }) {
  if (!error) return null;
  const help = /** @type {{help?: string}} */ (error).help;
  return html`<p class="trouble" role="alert">
    <strong>${error.message}</strong> ${help ? html`<span>${help}</span>` : null}
  </p>`;
}

/** @param {{sql: string, of: string}} properties */
export function ShownSql({ sql, of }) {
  const part = new URLSearchParams({ of, sql }).toString();
  return html`<details class="ran">
    <summary>The SQL that was run</summary>
    <pre>${sql}</pre>
    <a href=${`#/sql?${part}`}>Open in the editor</a>
  </details>`;
}

/**
 * That nothing was found, and by how many rules: of all, where there was no time for some.
 * @param {{judged: number, late: number}} found
 */
export function noneBy({ judged, late }) {
  return late ? `none by the ${judged} of ${judged + late} rules that there was time for` : `none by ${judged} rules`;
}
