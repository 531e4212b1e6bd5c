/** An editor for SQL: completion of tables and columns, and an error marked at its place. */

import { acceptCompletion } from "@codemirror/autocomplete";
import { sql as sqlLanguage, PostgreSQL } from "@codemirror/lang-sql";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { setDiagnostics } from "@codemirror/lint";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { basicSetup } from "codemirror";
import { useEffect, useRef } from "preact/hooks";
import { html } from "../html.js";

/** @typedef {{name: string, doc: string, columns: {name: string, doc: string}[]}} Table */

const COLORS = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--keyword)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--number)" },
  { tag: tags.comment, color: "var(--faint)", fontStyle: "italic" },
]);

/**
 * @param {{text: string, change: (text: string) => void, run: () => void, tables: Table[],
 *   fault: {position: number, message: string} | null}} properties
 */
export function Editor({ text, change, run, tables, fault }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const view = useRef(/** @type {EditorView | null} */ (null));
  const latest = useRef({ change, run });
  latest.current = { change, run };
  useEffect(() => {
    if (!place.current) return;
    const state = EditorState.create({ doc: text, extensions: extensionsFor(latest, tables) });
    view.current = new EditorView({ state, parent: place.current });
    return () => view.current?.destroy();
  }, [tables]);
  useEffect(() => {
    const editor = view.current;
    if (!editor || editor.state.doc.toString() === text) return;
    editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });
  }, [text]);
  useEffect(() => {
    const editor = view.current;
    if (!editor) return;
    const from = Math.min(fault?.position ?? 0, editor.state.doc.length);
    const end = editor.state.wordAt(from)?.to ?? Math.min(from + 1, editor.state.doc.length);
    const marks = fault ? [{ from, to: end, severity: /** @type {"error"} */ ("error"), message: fault.message }] : [];
    editor.dispatch(setDiagnostics(editor.state, marks));
  }, [fault]);
  return html`<div class="editor" ref=${place}></div>`;
}

/**
 * @param {{current: {change: (text: string) => void, run: () => void}}} latest
 * @param {Table[]} tables
 */
function extensionsFor(latest, tables) {
  const nonce = document.getElementById("page")?.dataset.nonce ?? "";
  const run = () => {
    latest.current.run();
    return true;
  };
  return [
    EditorView.cspNonce.of(nonce),
    Prec.highest(keymap.of([{ key: "Mod-Enter", run }, { key: "Tab", run: acceptCompletion }])),
    basicSetup,
    syntaxHighlighting(COLORS),
    sqlLanguage({ dialect: PostgreSQL, schema: schemaOf(tables), upperCaseKeywords: true }),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": "SQL" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) latest.current.change(update.state.doc.toString());
    }),
  ];
}

/** @param {Table[]} tables */
function schemaOf(tables) {
  return Object.fromEntries(
    tables.map((table) => [
      table.name,
      {
        self: { label: table.name.split(".").pop() ?? "", detail: table.doc, type: "class" },
        children: table.columns.map((one) => ({ label: one.name, detail: one.doc, type: "property" })),
      },
    ]),
  );
}
