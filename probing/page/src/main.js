/** The page: its header, the view that the address names, and what happens to the process. */

import { render } from "preact";
import { useEffect } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import { linkTo, usePlace } from "./address.js";
import { usePolled } from "./asking/polling.js";
import { askJson, hasToken, takeToken } from "./asking/session.js";
import { html } from "./html.js";
import { Trouble } from "./parts/messages.js";
import "./page.css";
import { useTheme } from "./theme.js";
import { About, shortJob } from "./views/about.js";
import { Act } from "./views/act/act.js";
import { Doctor } from "./views/doctor.js";
import { Memory } from "./views/memory/memory.js";
import { Model } from "./views/model/model.js";
import { kindOf, Processes } from "./views/processes.js";
import { Sql } from "./views/sql/sql.js";
import { Stacks } from "./views/stacks/stacks.js";
import { Step } from "./views/step/step.js";
import { Steps } from "./views/steps/steps.js";

const EVERY_MS = 2000;
/** The server itself minds what looking at the processes costs. */
const MOST_MS = 10_000;
/** The views of one process, in the order of the header. @type {[string, string, any][]} */
const VIEWS = [
  ["steps", "Steps", Steps], ["step", "One step", Step], ["stacks", "Stacks", Stacks], ["memory", "Memory", Memory],
  ["model", "Model", Model], ["sql", "SQL", Sql], ["doctor", "Doctor", Doctor],
  ["act", "Eval and actions", Act],
];

function Page() {
  const place = usePlace();
  const [theme, changeTheme] = useTheme();
  const { value: seen, error } = usePolled(
    (signal) => askJson("processes", undefined, signal), EVERY_MS, [], MOST_MS,
  );
  const entry = [...(seen?.processes ?? []), ...(seen?.ended ?? [])].find((one) => one.endpoint === place.of);
  useTitle(place, entry);
  const view = VIEWS.find(([key]) => key === place.view);
  const isLive = entry !== undefined && entry.state !== "dead" && !error;
  return html`
    <${Header} place=${place} seen=${seen} entry=${entry} theme=${theme} changeTheme=${changeTheme} />
    <div class="content">
      <${Trouble} error=${error} />
      ${seen?.trouble && seen.processes.length ? html`<p class="note">${seen.trouble}</p>` : null}
      ${view && entry ? html`<${About} key=${entry.endpoint} entry=${entry} isStuck=${kindOf(entry.state) === "bad"} />` : null}
      ${!view ? html`<${Processes} seen=${seen} />` : null}
      ${view && entry ? html`<${view[2]} key=${`${place.view} ${place.of}`} place=${place} isLive=${isLive} isStuck=${["bad", "gone"].includes(kindOf(entry.state))} theme=${theme} ranks=${ranksOf(seen, entry)} mayEval=${seen.may_eval} pid=${entry.pid} ageS=${entry.age_s ?? null} />` : null}
      ${view && seen && !entry ? html`<p>No such process is seen: <code>${place.of}</code>. <a href="#/">All of them</a>.</p>` : null}
    </div>`;
}

/**
 * @param {any} seen
 * @param {any} entry
 * @returns {{endpoint: string, name: string}[]} The other ranks of its job; none where it is of an earlier run.
 */
function ranksOf(seen, entry) {
  if (entry.rank === null) return [];
  const others = seen.processes.filter((/** @type {any} */ one) => one !== entry && one.job === entry.job && one.rank !== null && one.state !== "missing");
  return seen.ended.includes(entry) && others.some((/** @type {any} */ one) => one.rank === entry.rank) ? [] : others;
}

/** @param {{place: any, seen: any, entry: any, theme: string, changeTheme: () => void}} properties */
function Header({ place, seen, entry, theme, changeTheme }) {
  const processes = seen?.processes.filter((/** @type {any} */ one) => one.state !== "missing") ?? [];
  const of = place.of || (processes.length === 1 ? processes[0].endpoint : "");
  const choose = (/** @type {Event} */ event) => {
    const value = /** @type {HTMLSelectElement} */ (event.currentTarget).value;
    location.hash = value ? linkTo({ view: place.of ? place.view : "steps", of: value }) : "#/";
  };
  return html`<header>
    <h1><a href="#/">probing</a></h1>
    <nav aria-label="Views">
      <a href="#/" aria-current=${place.view === "processes" ? "page" : undefined}>Processes</a>
      ${of ? VIEWS.map(([key, word]) => html`<a href=${linkTo({ view: key, of })} aria-current=${place.view === key ? "page" : undefined}>${word}</a>`) : null}
    </nav>
    <span class="print-only">${[entry?.name, entry?.host, entry?.state, seen && new Date(seen.at_s * 1000).toLocaleString()].filter(Boolean).join(" · ")}</span>
    <select aria-label="Process" value=${place.of} onChange=${choose}>
      <option value="">all processes</option>
      ${[...processes, ...(seen?.ended ?? [])].map((/** @type {any} */ one) => html`<option value=${one.endpoint} selected=${one.endpoint === place.of}>${[one.job && one.rank !== null ? `${one.name} of ${shortJob(one.job)}` : one.name, one.state].join(" · ")}</option>`)}
    </select>
    <button onClick=${changeTheme}>${theme === "dark" ? "Light" : "Dark"}</button>
  </header>`;
}

/**
 * @param {any} place
 * @param {any} entry
 */
function useTitle(place, entry) {
  const isWrong = entry && ["bad", "gone"].includes(kindOf(entry.state));
  const title = entry ? `${isWrong ? `${entry.state}: ` : ""}${entry.name} · ${place.view} · probing` : "probing";
  useEffect(() => {
    document.title = title;
  }, [title]);
}

function NoToken() {
  return html`<div class="content"><h1>probing</h1>
    <p role="alert">This page opens by the link that <code>probing web</code> prints: its token is not in this tab.</p></div>`;
}

function show() {
  const root = document.getElementById("page");
  if (!root) return;
  render(null, root);
  render(hasToken() ? html`<${Page} />` : html`<${NoToken} />`, root);
}

takeToken();
addEventListener("hashchange", () => takeToken() && show()); // a new link, opened in this tab
show();
