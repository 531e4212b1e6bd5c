/** What a step of another size would take, predicted on a copy of the model. */

import { bytesText } from "../../asking/units.js";
import { html } from "../../html.js";
import { COLORS, word } from "./tensors.js";

/** @typedef {{shape: {batch: number}, bytes: number, phase: string, parts: {category: string, bytes: number}[]}} Peak */

/** @param {{found: {now: Peak, asked: Peak, fixed_bytes: number | null, lines: string[]}}} properties */
export function Fit({ found }) {
  const { now, asked, fixed_bytes: fixed, lines } = found;
  const peaks = [now, asked];
  const sizes = peaks.map((peak) => new Map(peak.parts.map((one) => [one.category, one.bytes])));
  const categories = [...new Set(peaks.flatMap((peak) => peak.parts.map((one) => one.category)))]
    .sort((a, b) => (sizes[1].get(b) ?? 0) - (sizes[1].get(a) ?? 0));
  return html`<div class="wide-table"><table>
    <caption class="faint">${lines[0]}</caption>
    <thead><tr><th>at the peak</th>${peaks.map((peak, index) => html`<th class="number">${index ? "largest" : "now"}: batch ${peak.shape.batch.toLocaleString("en")}</th>`)}</tr></thead>
    <tbody>${categories.map((category) => html`<tr><td><i class="dot" style=${{ background: COLORS[category.replaceAll(" ", "_")] ?? COLORS.other }}></i>${word(category)}</td>
      ${sizes.map((one) => html`<td class="number">${bytesText(one.get(category) ?? 0)}</td>`)}</tr>`)}
      ${fixed === null ? null : html`<tr><td>beside tensors</td>${peaks.map(() => html`<td class="number">${bytesText(fixed)}</td>`)}</tr>`}
      <tr><td><strong>needed</strong></td>${peaks.map((peak) => html`<td class="number"><strong>${bytesText(peak.bytes + (fixed ?? 0))}</strong></td>`)}</tr></tbody>
  </table><ul class="faint">${lines.slice(1).map((line) => html`<li>${line}</li>`)}</ul></div>`;
}
