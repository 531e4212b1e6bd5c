/** What is drawn on a canvas is drawn anew for paper, as wide as a page has room for. */

import { useEffect, useRef } from "preact/hooks";

/** The width of a page of A4 between its margins. */
const PAPER = 700;

/**
 * @param {(width: number | null) => void} draw Draws at once; null is as wide as on the screen.
 */
export function usePaper(draw) {
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const before = () => latest.current(PAPER);
    const after = () => latest.current(null);
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, []);
}
