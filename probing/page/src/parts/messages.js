/** What a person is told beside the answers: errors, notes, and the SQL that was run. */

import { linkTo } from "../address.js";
import { html, sentence } from "../html.js";

/** @param {{error: Error | null, again?: () => void}} properties `again` asks once more. */
export function Trouble({ error, again }) {
  if (!error) return null;
  const help = /** @type {{help?: string}} */ (error).help;
  return html`<p class="trouble" role="alert">
    <strong>${sentence(error.message)}</strong> ${help ? html`<span>${sentence(help)}</span>` : null}
    ${again ? html`${" "}<button class="small no-print" onClick=${again}>Ask again</button>` : null}
  </p>`;
}

/** @param {{sql: string | string[], of: string, words?: string}} properties */
export function ShownSql({ sql, of, words = "The SQL that was run" }) {
  const all = typeof sql === "string" ? [sql] : sql;
  return html`<details class="ran">
    <summary>${words}</summary>
    ${all.map((one) => html`<pre tabindex="0">${one}</pre>
      ${of ? html`<a href=${linkTo({ view: "sql", of, part: { sql: one } })}>Open in the editor</a>` : null}`)}
  </details>`;
}

/**
 * That nothing was found, and by how many rules: of all, where there was no time for some.
 * @param {{judged: number, late: number}} found
 */
export function noneBy({ judged, late }) {
  return late ? `none by the ${judged} of ${judged + late} rules that there was time for` : `none by ${judged} rules`;
}
