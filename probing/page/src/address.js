/** Which view is shown, of which process, and which part of it: all of it in the address. */

import { useEffect, useState } from "preact/hooks";

/** @typedef {{view: string, of: string, part: Record<string, string>}} Place */

/** @returns {Place} Where the page is. */
export function here() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const part = Object.fromEntries(new URLSearchParams(query ?? ""));
  const { of = "", ...rest } = part;
  return { view: path || "processes", of, part: rest };
}

/**
 * @param {Partial<Place> & {view: string}} place
 * @returns {string} What a link to it has as its address.
 */
export function linkTo({ view, of = "", part = {} }) {
  const query = new URLSearchParams(of ? { of, ...part } : part).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** @param {Partial<Place> & {view: string}} place */
export function go(place) {
  location.hash = linkTo(place);
}

/** @returns {Place} Where the page is, now and whenever that changes. */
export function usePlace() {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    const look = () => setPlace(here());
    addEventListener("hashchange", look);
    return () => removeEventListener("hashchange", look);
  }, []);
  return place;
}
