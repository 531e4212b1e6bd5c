/** A report or a profile in one file: the same plots, boxes and findings, of what stands in the file itself. */

import { render } from "preact";
import { useMemo } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import { read } from "./asking/rows.js";
import { bytesText } from "./asking/units.js";
import { html, sentence } from "./html.js";
import "./page.css";
import { useTheme } from "./theme.js";
import { Found } from "./views/doctor.js";
import { FlameFile } from "./views/stacks/flame_file.js";
import { Threads } from "./views/stacks/threads.js";
import { DrawnCalls } from "./views/step/step.js";
import { boxesOf } from "./views/step/step_boxes.js";
import { curvesOf, DrawnSteps } from "./views/steps/steps.js";

/**
 * @typedef {{facts: [string, string][], problems: string[], has_ended: boolean, steps: string | null,
 *   calls: {title: string, rows: string}[], findings: any, memory: [string, number][],
 *   threads: any, environment: {kind: string, name: string, value: string | null}[], missing: string[]}} Record
 */

/** @param {{record: Record}} properties */
function Report({ record }) {
  const [theme, changeTheme] = useTheme();
  const steps = useMemo(() => (record.steps ? curvesOf(rowsIn(record.steps)) : null), []);
  return html`<${Head} theme=${theme} changeTheme=${changeTheme} />
    <div class="content">
      <section><table class="facts"><tbody>${record.facts.map(([name, value]) => html`<tr><th>${name}</th><td class="wide">${value}</td></tr>`)}</tbody></table>
        ${record.problems.map((one) => html`<p class="trouble">${sentence(one)}</p>`)}</section>
      ${record.threads ? html`<section><h2>Where its threads ${record.has_ended ? "were" : "are"}</h2><${Threads} trace=${record.threads} isShort=${false} /></section>` : null}
      <section><h2>Findings</h2><${Found} found=${record.findings} /></section>
      ${steps ? html`<section><h2>Steps</h2><${DrawnSteps} drawn=${steps} isWhole=${true} theme=${theme} /></section>` : null}
      ${record.calls.map((one) => html`<${Calls} ...${one} theme=${theme} />`)}
      ${record.memory.length ? html`<section><h2>Memory</h2><table class="facts"><tbody>
        ${record.memory.map(([name, bytes]) => html`<tr><th>${name}</th><td class="number">${bytesText(bytes)}</td></tr>`)}</tbody></table></section>` : null}
      ${record.environment.length ? html`<${Environment} rows=${record.environment} />` : null}
      ${record.missing.length ? html`<section><h2>What is not in it</h2>${record.missing.map((one) => html`<p class="note">${one}</p>`)}</section>` : null}
    </div>`;
}

/** @param {{title: string, rows: string, theme: string}} properties */
function Calls({ title, rows, theme }) {
  const drawn = useMemo(() => boxesOf(rowsIn(rows)), []);
  return html`<section><h2>${title}</h2><${DrawnCalls} drawn=${drawn} theme=${theme} /></section>`;
}

/** @param {{stacks: import("./views/stacks/flame_file.js").Stacks}} properties Those of `profile` alone. */
function Profile({ stacks }) {
  const [theme, changeTheme] = useTheme();
  return html`<${Head} theme=${theme} changeTheme=${changeTheme} />
    <div class="content"><${FlameFile} stacks=${stacks} theme=${theme} /></div>`;
}

/** @param {{theme: string, changeTheme: () => void}} properties */
function Head({ theme, changeTheme }) {
  return html`<header><h1>${document.title}</h1><nav></nav>
    <button onClick=${changeTheme}>${theme === "dark" ? "Light" : "Dark"}</button></header>`;
}

/** @param {{rows: {kind: string, name: string, value: string | null}[]}} properties */
function Environment({ rows }) {
  return html`<section><h2>Environment</h2><details><summary>${`${rows.length} values`}</summary><table class="facts"><tbody>
    ${rows.map((one) => html`<tr><th>${one.kind}</th><td>${one.name}</td><td class="wide">${one.value ?? "not shown"}</td></tr>`)}
  </tbody></table></details></section>`;
}

/** @param {string} text An Arrow stream in base64. */
function rowsIn(text) {
  return read(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)));
}

const data = document.getElementById("record")?.textContent;
const root = document.getElementById("page");
const record = data && JSON.parse(data);
if (record && root) render(record.stacks ? html`<${Profile} stacks=${record.stacks} />` : html`<${Report} record=${record} />`, root);
