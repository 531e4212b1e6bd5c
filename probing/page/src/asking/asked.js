/** Asks on a person's word: where a look costs the training something, or takes long. */

import { useEffect, useRef, useState } from "preact/hooks";

/**
 * @template T
 * @typedef {{value: T | null, error: Error | null, isBusy: boolean, ask: () => void, giveUp: () => void}} Asked
 */

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} question
 * @returns {Asked<T>} The last answer stays while the next is awaited, and beside an error.
 */
export function useAsked(question) {
  const nothing = { value: /** @type {T | null} */ (null), error: /** @type {Error | null} */ (null), isBusy: false };
  const [state, setState] = useState(nothing);
  const running = useRef(/** @type {AbortController | null} */ (null));
  useEffect(() => () => running.current?.abort(), []);
  const ask = async () => {
    running.current?.abort();
    const mine = (running.current = new AbortController());
    setState((before) => ({ ...before, error: null, isBusy: true }));
    try {
      const value = await question(mine.signal);
      if (!mine.signal.aborted) setState({ value, error: null, isBusy: false });
    } catch (error) {
      if (!mine.signal.aborted) setState((before) => ({ ...before, error: /** @type {Error} */ (error), isBusy: false }));
    }
  };
  const giveUp = () => {
    running.current?.abort();
    setState((before) => ({ ...before, isBusy: false }));
  };
  return { ...state, ask, giveUp };
}
