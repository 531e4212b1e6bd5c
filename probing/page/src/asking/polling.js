/** Asks again and again while a view is seen, and stops when it goes; in a tab behind others once it is in front. */

import { useEffect, useRef, useState } from "preact/hooks";

/** The part of the time that something is in hand for a view that is only looked at. */
const SHARE = 0.02;
const MOST_MS = 60_000;
/** What a view that goes has asked may end by itself for so long: to give it up costs a worker. */
const GRACE_MS = 2000;

/**
 * @template T
 * @typedef {{value: T | null, error: Error | null, isBusy: boolean, again: () => void}} Polled `again` asks at once.
 */

/**
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} question
 * @param {number} everyMs How long after an answer the next is asked for, at least; 0 for once.
 * @param {unknown[]} key With another one, what was asked for the one before is given up.
 * @param {number} [mostMs] How long after it at most, however long the answer took.
 * @returns {Polled<T>} The last answer stays while the next is awaited, and beside an error.
 */
export function usePolled(question, everyMs, key, mostMs = MOST_MS) {
  const [state, setState] = useState(
    /** @type {Omit<Polled<T>, "again">} */ ({ value: null, error: null, isBusy: true }),
  );
  const [round, setRound] = useState(0);
  const asked = useRef(question);
  asked.current = question;
  useEffect(() => {
    const giveUp = new AbortController();
    let isGone = false;
    /** @type {number | undefined} */
    let timer;
    const look = async () => {
      if (document.hidden) return document.addEventListener("visibilitychange", look, { once: true });
      const began = performance.now();
      try {
        const value = await asked.current(giveUp.signal);
        if (!isGone) setState({ value, error: null, isBusy: false });
      } catch (error) {
        if (isGone) return;
        const seen = /** @type {Error} */ (error);
        setState((before) => ({ ...before, error: seen, isBusy: false }));
      }
      const costMs = Math.min(mostMs, (performance.now() - began) / SHARE);
      if (everyMs && !isGone) timer = setTimeout(look, Math.max(everyMs, costMs));
    };
    setState((before) => ({ ...before, isBusy: true }));
    look();
    return () => {
      isGone = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
      setTimeout(() => giveUp.abort(), GRACE_MS);
    };
  }, [everyMs, round, ...key]);
  return { ...state, again: () => setRound(round + 1) };
}
