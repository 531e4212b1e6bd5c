/** A button that puts a text where it can be pasted from. */

import { useEffect, useState } from "preact/hooks";
import { html } from "../html.js";

const SAID_MS = 2000;

/** @param {{text: string | (() => string), word?: string}} properties */
export function Copy({ text, word = "Copy" }) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = said ? setTimeout(() => say(""), SAID_MS) : undefined;
    return () => clearTimeout(timer);
  }, [said]);
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(() => say("Copied"), () => say("The browser refuses"));
  return html`<button class="small no-print" onClick=${copy}><span role="status">${said || word}</span></button>`;
}
