/** An answer as a file: CSV, Parquet, Arrow. */

import { useState } from "preact/hooks";
import { hand } from "../../asking/files.js";
import { asCsv } from "../../asking/rows.js";
import { ask } from "../../asking/session.js";
import { html } from "../../html.js";
import { Trouble } from "../../parts/messages.js";

/** @param {{rows: import("../../asking/rows.js").Rows, sql: string, of: string, ofJob: boolean}} properties */
export function Downloads({ rows, sql, of, ofJob }) {
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const parquet = async () => {
    try {
      const answer = await ask("query", { endpoint: of, sql, format: "parquet", of_job: ofJob });
      setError(null);
      hand(await answer.arrayBuffer(), "answer.parquet");
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
  };
  return html`<span class="bar">Download
    <button onClick=${() => hand(asCsv(rows), "answer.csv")}>CSV</button>
    <button onClick=${parquet} title="runs the statement again">Parquet</button>
    <button onClick=${() => hand(/** @type {any} */ (rows.bytes), "answer.arrows")}>Arrow</button>
    <${Trouble} error=${error} />
  </span>`;
}
