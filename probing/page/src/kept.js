/** What the browser keeps for this page; where it refuses, as in a sandboxed frame, the page itself does. */

import { useState } from "preact/hooks";

/** @type {Map<string, string>} */
const instead = new Map();
/** @type {Map<string, string>} */
const typed = new Map();

/**
 * As `useState` of a text that a person types, which is there again when its view is.
 * @param {string} key
 * @param {string} first
 * @returns {[string, (text: string) => void]}
 */
export function useTyped(key, first) {
  const [text, setText] = useState(typed.get(key) ?? first);
  const change = (/** @type {string} */ next) => {
    typed.set(key, next);
    setText(next);
  };
  return [text, change];
}

/**
 * @param {"localStorage" | "sessionStorage"} where
 * @param {string} key
 * @returns {string | null}
 */
export function keptText(where, key) {
  try {
    return instead.get(key) ?? window[where].getItem(key);
  } catch {
    return null;
  }
}

/**
 * @param {"localStorage" | "sessionStorage"} where
 * @param {string} key
 * @param {string} text
 */
export function keepText(where, key, text) {
  try {
    window[where].setItem(key, text);
    instead.delete(key);
  } catch {
    instead.set(key, text);
  }
}
