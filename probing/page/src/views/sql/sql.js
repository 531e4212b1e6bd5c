/** Questions by SQL: an editor, the answer as a grid or a plot, and files of it. */

import { useEffect, useRef, useState } from "preact/hooks";
import { usePolled } from "../../asking/polling.js";
import { query } from "../../asking/rows.js";
import { askJson } from "../../asking/session.js";
import { html } from "../../html.js";
import { useTyped } from "../../kept.js";
import { Editor } from "../../parts/editor.js";
import { Grid } from "../../parts/grid.js";
import { Trouble } from "../../parts/messages.js";
import { AnswerPlot } from "./answer_plot.js";
import { Downloads } from "./downloads.js";
import { history, keep, kept, remember } from "./kept_questions.js";

const FIRST = `SELECT step, loss, duration, data_wait_s, forward_s, backward_s, optimizer_s
FROM python.steps ORDER BY step DESC LIMIT 1000`;

/** @param {{place: import("../../address.js").Place, theme: string, ranks: any[]}} properties */
export function Sql({ place, theme, ranks }) {
  const [text, setText] = useTyped("sql", place.part.sql ?? FIRST);
  const catalog = usePolled((signal) => askJson("catalog", undefined, signal), 0, []);
  const answer = useAnswer(place.of);
  const [isWide, setWide] = useState(false);
  useEffect(() => {
    if (place.part.sql !== undefined) setText(place.part.sql);
  }, [place.part.sql]);
  const run = () => answer.run(text, isWide);
  return html`<section>
    <h2>SQL</h2>
    <${Questions} catalog=${catalog.value} text=${text} choose=${setText} />
    ${catalog.value ? html`<${Editor} text=${text} change=${setText} run=${run} tables=${catalog.value.tables} fault=${answer.fault} />` : null}
    <p class="bar">
      <button class="main" onClick=${run} disabled=${answer.isBusy}>Run</button>
      <span class="faint no-print">Ctrl-Enter</span>
      ${ranks.length ? html`<label class="no-print"><input type="checkbox" checked=${isWide} onChange=${() => setWide(!isWide)} />
        Over all ${ranks.length + 1} ranks: each table begins with the columns rank, host, pid, job</label>` : null}
      ${answer.isBusy ? html`<button onClick=${answer.giveUp}>Cancel</button> <span class="faint">running …</span>` : null}
      <span class="faint">${answer.words}</span>
    </p>
    <${Trouble} error=${catalog.error} again=${catalog.again} />
    <${Trouble} error=${answer.error} />
    ${answer.rows && answer.error ? html`<p class="note">Below is the answer to the statement before: <code>${answer.asked.replace(/\s+/g, " ").slice(0, 200)}</code></p>` : null}
    ${answer.rows ? html`<${Answer} rows=${answer.rows} asked=${answer.asked} isWide=${answer.isWide} of=${place.of} theme=${theme} />` : null}
  </section>`;
}

/**
 * The answer to the statement that was run last.
 * @param {string} endpoint
 */
function useAnswer(endpoint) {
  const [state, setState] = useState(
    /** @type {{rows: import("../../asking/rows.js").Rows | null, error: any, isBusy: boolean, asked: string, isWide: boolean, words: string}} */
    ({ rows: null, error: null, isBusy: false, asked: "", isWide: false, words: "" }),
  );
  const running = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => running.current?.abort(), [endpoint]);
  const run = async (/** @type {string} */ sql, /** @type {boolean} */ isWide) => {
    running.current?.abort();
    const mine = (running.current = new AbortController());
    setState((before) => ({ ...before, error: null, isBusy: true, words: "" }));
    const began = performance.now();
    try {
      const rows = await query(endpoint, sql, { signal: mine.signal, ofJob: isWide });
      const ms = Math.round(performance.now() - began);
      const words = `${rows.length.toLocaleString("en")} rows in ${ms.toLocaleString("en")} ms`;
      remember(sql);
      setState({ rows, error: null, isBusy: false, asked: sql, isWide, words });
    } catch (error) {
      const given = mine.signal.aborted ? null : error;
      if (running.current === mine) {
        setState((before) => ({ ...before, error: given, isBusy: false, words: given ? "" : "cancelled" }));
      }
    }
  };
  const position = state.error?.detail?.position;
  const fault = useRef(/** @type {{position: number, message: string} | null} */ (null));
  if (fault.current?.message !== state.error?.message) {
    fault.current = position === undefined ? null : { position, message: state.error.message };
  }
  return { ...state, run, giveUp: () => running.current?.abort(), fault: fault.current };
}

/** @param {{catalog: any, text: string, choose: (sql: string) => void}} properties */
function Questions({ catalog, text, choose }) {
  const [own, setOwn] = useState(kept);
  const [earlier, setEarlier] = useState(history);
  const listed = (/** @type {string} */ label, /** @type {{name: string, sql: string, doc?: string}[]} */ all) => html`<label>
    ${label} <select value="" onFocus=${() => setEarlier(history())} onChange=${(/** @type {Event} */ event) => {
      const select = /** @type {HTMLSelectElement} */ (event.currentTarget);
      const found = all[Number(select.value)];
      if (found) choose(found.sql);
      select.value = "";
    }}>
      <option value="">${all.length ? "choose …" : "none"}</option>
      ${all.map((one, index) => html`<option value=${index}>${one.doc ? `${one.name}: ${one.doc}` : one.name}</option>`)}
    </select></label>`;
  const store = () => {
    const name = prompt("A name for this question:");
    if (name) setOwn(keep(name, text));
  };
  return html`<p class="bar no-print">
    ${listed("Saved questions", catalog?.questions ?? [])}
    ${listed("Your own", own)}
    ${listed("Earlier", earlier)}
    <button onClick=${store}>Save this one</button>
  </p>`;
}

/** @param {{rows: import("../../asking/rows.js").Rows, asked: string, isWide: boolean, of: string, theme: string}} properties */
function Answer({ rows, asked, isWide, of, theme }) {
  const [form, setForm] = useState("grid");
  const tab = (/** @type {string} */ key, /** @type {string} */ word) => html`<button
    aria-pressed=${form === key} onClick=${() => setForm(key)}>${word}</button>`;
  return html`<div>
    <p class="bar no-print">${tab("grid", "Grid")} ${tab("plot", "Plot")} <${Downloads} rows=${rows} sql=${asked} of=${of} ofJob=${isWide} />
      ${rows.truncated ? html`<strong class="bad">cut: ${rows.truncated}</strong>` : null}</p>
    ${rows.notes.map((note) => html`<p class="note">${note}</p>`)}
    ${form === "grid" ? html`<${Grid} rows=${rows} name="answer" />` : html`<${AnswerPlot} rows=${rows} theme=${theme} />`}
  </div>`;
}
