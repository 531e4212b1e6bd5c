/** Markup in scripts: values are put in as text or attributes, never as markup. */

import htm from "htm";
import { h } from "preact";

/** What cannot be seen, or turns the order of what stands beside it; line breaks and tabs may stay. */
const CONTROLS = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g;

/**
 * A text as it can be read, with control characters written out, as the command line does.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(CONTROLS, (character) => {
    const code = character.charCodeAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/**
 * @param {any} type
 * @param {any} properties
 * @param {any[]} children
 */
function element(type, properties, ...children) {
  return h(type, properties, ...children.map((child) => (typeof child === "string" ? visible(child) : child)));
}

export const html = htm.bind(element);

/**
 * A sentence whose commands stand between grave accents, as the command line writes them.
 * @param {string} text
 */
export function sentence(text) {
  return text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : visible(part)));
}
