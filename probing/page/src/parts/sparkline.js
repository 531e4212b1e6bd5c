/** A line of the last values, as small as a word. */

import { html } from "../html.js";

const WIDTH = 96;
const HEIGHT = 20;

/** @param {{values: (number | string | null)[], name: string}} properties */
export function Sparkline({ values, name }) {
  const known = values.filter((value) => typeof value === "number");
  if (known.length < 2) return html`<span class="faint">–</span>`;
  const least = Math.min(...known);
  const span = Math.max(...known) - least || 1;
  const step = WIDTH / (values.length - 1);
  const points = values
    .map((value, index) =>
      typeof value === "number"
        ? `${(index * step).toFixed(1)},${(HEIGHT - 2 - ((value - least) / span) * (HEIGHT - 4)).toFixed(1)}`
        : null,
    )
    .filter((point) => point !== null);
  return html`<svg class="spark" width=${WIDTH} height=${HEIGHT} role="img" aria-label=${name}>
    <polyline points=${points.join(" ")} />
  </svg>`;
}
