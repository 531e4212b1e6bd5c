/** What changes a training is asked for twice. */

import { useEffect, useRef, useState } from "preact/hooks";
import { html } from "../../html.js";

/**
 * A button, and what has to be pressed after it.
 * @param {{word: string, question: string, isOff: boolean, act: () => void}} properties
 */
export function SecondQuestion({ word, question, isOff, act }) {
  const [isAsked, setAsked] = useState(false);
  const no = useRef(/** @type {HTMLButtonElement | null} */ (null));
  useEffect(() => {
    if (isAsked) no.current?.focus();
  }, [isAsked]);
  useEffect(() => setAsked(false), [question]);
  const yes = () => {
    setAsked(false);
    act();
  };
  if (!isAsked) return html`<button class="main" disabled=${isOff} onClick=${() => setAsked(true)}>${word} …</button>`;
  return html`<span class="trouble" role="alertdialog" aria-label=${question}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Escape" && setAsked(false)}>${question}${" "}
    <button ref=${no} onClick=${() => setAsked(false)}>No</button>${" "}<button class="main" onClick=${yes}>Yes, ${word.toLowerCase()}</button></span>`;
}
