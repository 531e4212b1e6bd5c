/** A search for boxes, and how to move among them. */

import { useState } from "preact/hooks";
import { html } from "../html.js";

/** @returns {{search: string, turn: number, field: {search: string, setSearch: (search: string) => void, next: () => void}}} */
export function useBoxSearch() {
  const [search, setSearch] = useState("");
  const [turn, setTurn] = useState(0);
  return { search, turn, field: { search, setSearch, next: () => setTurn(turn + 1) } };
}

/** @param {{search: string, setSearch: (search: string) => void, next: () => void, placeholder: string}} properties */
export function BoxSearch({ search, setSearch, next, placeholder }) {
  return html`<label>Search <input type="search" value=${search} placeholder=${placeholder} title="Enter goes to the next"
    onInput=${(/** @type {Event} */ event) => setSearch(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
    onKeyDown=${(/** @type {KeyboardEvent} */ event) => event.key === "Enter" && search && next()} /></label>`;
}

export function HowToMove() {
  return html`<span class="faint">Click a box or turn the wheel to zoom, drag to move, double-click for all; by keys <kbd>↑</kbd> <kbd>↓</kbd> <kbd>Shift ←</kbd> <kbd>Shift →</kbd> from box to box, <kbd>Enter</kbd> <kbd>+</kbd> <kbd>-</kbd> <kbd>←</kbd> <kbd>→</kbd> <kbd>0</kbd>.</span>`;
}
