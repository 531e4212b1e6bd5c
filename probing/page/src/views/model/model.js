/** The modules of the models: parameters, time, gradients; shapes and FLOPs of their next call. */

import { useMemo, useRef } from "preact/hooks";
import { useAsked } from "../../asking/asked.js";
import { usePolled } from "../../asking/polling.js";
import { numbers, query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { html } from "../../html.js";
import { AskButton } from "../../parts/ask_button.js";
import { ShownSql, Trouble } from "../../parts/messages.js";
import modulesSql from "../../sql/modules.sql";
import observedSql from "../../sql/modules_observed.sql";
import recordSql from "../../sql/model_record.sql";
import { Trees } from "./model_table.js";
import { treesOf } from "./model_tree.js";

const LIVE_MS = 10_000;

/** @param {{place: import("../../address.js").Place, isLive: boolean}} properties */
export function Model({ place, isLive }) {
  const of = place.of;
  const observed = useAsked((signal) => query(of, observedSql.trim(), { signal }));
  const measured = useAsked((signal) => askJson("gradients", { endpoint: of }, signal));
  const record = usePolled((signal) => query(of, recordSql.trim(), { signal }), isLive ? LIVE_MS : 0, [of, measured.value]);
  const known = useRef(/** @type {import("../../asking/rows.js").Rows | null} */ (null));
  const modules = usePolled(
    async (signal) => (isLive && !known.current ? (known.current = await query(of, modulesSql.trim(), { signal })) : known.current),
    isLive && !known.current ? LIVE_MS : 0, [of, isLive],
  );
  const seen = observed.value ?? modules.value;
  const trees = useMemo(() => treesOf(record.value, seen), [record.value, seen]);
  const isBusy = !record.value && !record.error;
  return html`<section>
    <h2>Model</h2>
    <${Trouble} error=${record.error} again=${record.again} />
    <${Trouble} error=${observed.value ? null : modules.error} again=${modules.again} />
    ${!isLive && !seen && trees.length ? html`<p class="note">Parameters, shapes and FLOPs are told by a process that runs: these are the calls on its record.</p>` : null}
    <${AskButton} asked=${observed} word="Shapes and FLOPs" isOff=${!isLive}
      cost=${`watches every module in the next forward pass; that one takes a little longer${stepText(seen, "observed_step")}`} />
    <${AskButton} asked=${measured} word="Gradients and updates" isOff=${!isLive}
      cost=${`looks at every gradient in the next step, and keeps copies of the weights for it${stepText(record.value, "gradient_step")}`} />
    ${trees.length ? html`<${Trees} trees=${trees} />` : isBusy ? html`<p class="faint">Reading its modules …</p>` : html`<p>No call of a module is on record.</p>`}
    <${ShownSql} sql=${[recordSql.trim(), (observed.value ? observedSql : modulesSql).trim()]} of=${of} />
  </section>`;
}

/**
 * Of which step figures are that are not of now.
 * @param {import("../../asking/rows.js").Rows | null} rows
 * @param {string} column
 */
function stepText(rows, column) {
  const steps = rows ? numbers(rows, column).filter((one) => one !== null) : [];
  return steps.length ? `. Shown are those of step ${Math.max(...steps).toLocaleString("en")}` : "";
}
