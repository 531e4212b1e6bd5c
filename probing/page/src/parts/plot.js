/** A plot over steps, or over any column: uPlot, with one cursor over all plots of a view. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { numberText, ticksText } from "../asking/units.js";
import { html } from "../html.js";
import { colorOf, themeShown } from "../theme.js";
import { usePaper } from "./paper.js";

/**
 * @typedef {{label: string, color: string, values: (number | null)[], fill?: boolean,
 *   low?: (number | null)[], high?: (number | null)[]}} Curve
 * @typedef {{x: (number | null)[], curves: Curve[], height?: number, isStacked?: boolean,
 *   format?: (value: number | null, digits?: number) => string, xName?: string, group?: string,
 *   marks?: {step: number, color: string, isTick: boolean}[], pointed?: (x: number | null) => void,
 *   isBinary?: boolean, isLog?: boolean, extra?: any, zoom?: (from: number, to: number) => void, reset?: () => void, name: string,
 *   theme: string}} Plotted
 */

/** Distances of ticks that are round in bytes. */
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
/** The same in steps, of which there are no parts. */
const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 2.5, 5].map((one) => one * 10 ** power)).flat().filter(Number.isInteger);
/** The same in numbers beyond those that uPlot knows ticks for: a loss that diverges gets there. */
const LARGE_FROM = 1e30;
const LARGE = Array.from({ length: 280 }, (_, power) => [1, 2, 5].map((one) => Number(`${one}e${power + 28}`))).flat();
const MOST_DECADES = 6;

/** @param {Plotted} plotted */
export function Plot(plotted) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const drawn = useRef(/** @type {uPlot | null} */ (null));
  const current = useRef(plotted);
  current.current = plotted;
  const shape = [plotted.curves.map((curve) => curve.label).join(), plotted.theme, plotted.xName, Boolean(plotted.isLog), isHuge(plotted)].join("|");
  useEffect(() => {
    const node = place.current;
    if (!node) return;
    const plot = new uPlot(optionsFor(current, node.clientWidth), dataOf(plotted), node);
    drawn.current = plot;
    const watch = new ResizeObserver(() => {
      plot.setSize({ width: node.clientWidth, height: plotted.height ?? 160 });
    });
    watch.observe(node);
    return () => {
      watch.disconnect();
      plot.destroy();
      drawn.current = null;
    };
  }, [shape]);
  useEffect(() => {
    const plot = drawn.current;
    // Where a person has zoomed and the view does not see to it, the newer values are behind it.
    const isZoomed = plot && !plotted.zoom && isWithin(plot, plotted.x);
    plot?.setData(dataOf(plotted), !isZoomed);
    if (isZoomed) plot.redraw();
  }, [plotted.x, plotted.curves]);
  useEffect(() => {
    drawn.current?.redraw(false);
  }, [plotted.marks?.length, plotted.marks?.[0]?.step]);
  usePaper((width) => drawn.current?.setSize({ width: width ?? place.current?.clientWidth ?? 0, height: plotted.height ?? 160 }));
  return html`<figure class="plot">
    <figcaption>${plotted.name} ${plotted.extra}</figcaption>
    <div ref=${place}></div>
  </figure>`;
}

/**
 * @param {uPlot} plot
 * @param {(number | null)[]} next
 * @returns {boolean} Whether it shows a part of what it has, in which there is something of the next values, too.
 */
function isWithin(plot, next) {
  const [x] = plot.data;
  const { min, max } = plot.scales.x;
  if (x.length < 2 || min == null || max == null) return false;
  return (min > x[0] || max < x[x.length - 1]) && next.some((one) => one !== null && one >= min && one <= max);
}

/**
 * The values in uPlot's order: x, then of each curve its mean, least and most. Stacked curves are
 * sums from the bottom, the highest first, so that each covers what lies below it.
 * @param {Plotted} plotted
 * @returns {uPlot.AlignedData}
 */
function dataOf({ x, curves, isStacked }) {
  if (!isStacked) {
    const all = curves.flatMap((curve) =>
      curve.low && curve.high ? [curve.values, curve.low, curve.high] : [curve.values],
    );
    return /** @type {uPlot.AlignedData} */ ([x, ...all]);
  }
  const sums = new Array(x.length).fill(0);
  const stacked = curves.map((curve) => {
    curve.values.forEach((value, index) => (sums[index] += value ?? 0));
    return [...sums];
  });
  return /** @type {uPlot.AlignedData} */ ([x, ...stacked.reverse()]);
}

/**
 * @param {{current: Plotted}} current
 * @param {number} width
 * @returns {uPlot.Options}
 */
function optionsFor(current, width) {
  const plotted = current.current;
  const ink = () => colorOf("--faint");
  const grid = { stroke: () => colorOf("--line"), width: 1 };
  /** @type {(value: number | null, digits?: number) => string} */
  const format = (value, digits) => (current.current.format ? current.current.format(value, digits) : String(value ?? "–"));
  return {
    width,
    height: plotted.height ?? 160,
    // What is stacked is seen whole; one value alone is at least a point.
    scales: { x: { time: false }, ...scaleOf(plotted) },
    cursor: {
      sync: plotted.group ? { key: plotted.group } : undefined,
      drag: { x: true, y: false, setScale: !plotted.zoom },
    },
    axes: [
      { stroke: ink, grid, ticks: grid, size: 34, ...(plotted.xName ? {} : { incrs: WHOLE }) },
      {
        stroke: ink, grid, ticks: grid, size: (_, texts) => Math.max(72, 16 + 7 * Math.max(0, ...(texts ?? []).map((one) => one.length))), values: (_, ticks) => ticksText(ticks, format),
        ...(plotted.isBinary ? { incrs: POWERS } : isHuge(plotted) ? { incrs: LARGE } : {}), ...decadesOf(plotted),
      },
    ],
    series: [{ label: plotted.xName ?? "step", value: (_, value) => (value === null ? "–" : numberText(value)) }, ...seriesOf(current, format)],
    bands: bandsOf(plotted),
    hooks: {
      setSelect: [(plot) => zoomTo(plot, current)],
      setCursor: [(plot) => current.current.pointed?.(plot.cursor.idx == null ? null : plot.data[0][plot.cursor.idx])],
      draw: [(plot) => drawMarks(plot, current.current.marks ?? [])],
      ready: [(plot) => plot.over.addEventListener("dblclick", () => current.current.reset?.())],
    },
  };
}

/** @param {Plotted} plotted */
function isHuge({ curves }) {
  return curves.some(({ values, high }) => (high ?? values).some((value) => Math.abs(value ?? 0) > LARGE_FROM));
}

/**
 * @param {Plotted} plotted
 * @returns {uPlot.Scales} How its values are turned into heights, where that is not as usual.
 */
function scaleOf({ isStacked, isLog }) {
  if (isStacked) return { y: { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } };
  return isLog ? { y: { distr: 3 } } : {};
}

/**
 * Ticks at powers of ten alone, where a scale of powers has more of them than there is room for.
 * @param {Plotted} plotted
 * @returns {Partial<uPlot.Axis>}
 */
function decadesOf({ isLog }) {
  if (!isLog) return {};
  /** @type {uPlot.Axis.Filter} */
  const all = (_, ticks) => ticks;
  return {
    filter: all,
    splits: (_, __, least, most) => {
      const [low, high] = [Math.ceil(Math.log10(least)), Math.floor(Math.log10(most))];
      const by = Math.max(1, Math.ceil((high - low) / MOST_DECADES));
      const powers = Array.from({ length: Math.max(0, Math.floor((high - low) / by) + 1) }, (_, index) => Number(`1e${low + index * by}`));
      return powers.length > 1 ? powers : [least, most];
    },
  };
}

/**
 * @param {{current: Plotted}} current
 * @param {(value: number | null) => string} format
 * @returns {uPlot.Series[]}
 */
function seriesOf(current, format) {
  const plotted = current.current;
  const own = (/** @type {string} */ label) => (/** @type {uPlot} */ _, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number | null} */ index) => {
    const curve = current.current.curves.find((one) => one.label === label);
    return index === null || !curve ? "–" : format(curve.values[index]);
  };
  const points = { show: (/** @type {uPlot} */ plot, /** @type {number} */ index) => Array.from(plot.data[index]).filter((value) => value !== null && value !== undefined).length < Math.max(2, plot.data[index].length / 2), size: plotted.x.length > 60 ? 3 : 6 };
  if (plotted.isStacked) {
    return [...plotted.curves].reverse().map(({ label, color }) => ({
      label, stroke: color, fill: color, width: 0, points, value: own(label),
    }));
  }
  return plotted.curves.flatMap((curve) => {
    const line = { label: curve.label, stroke: () => lineColor(curve.color), width: 1.5, points, value: own(curve.label) };
    if (!curve.low || !curve.high) return [line];
    const edge = { stroke: curve.color, width: 0.5, alpha: 0.35, points, value: (/** @type {any} */ _, /** @type {number | null} */ value) => format(value) };
    return [line, { ...edge, label: "least" }, { ...edge, label: "most" }];
  });
}

/**
 * Between the least and the most of a curve.
 * @param {Plotted} plotted
 * @returns {uPlot.Band[]}
 */
function bandsOf({ curves, isStacked }) {
  if (isStacked) return [];
  /** @type {uPlot.Band[]} */
  const bands = [];
  let index = 1;
  for (const curve of curves) {
    if (curve.low && curve.high) bands.push({ series: [index + 2, index + 1], fill: `${curve.color}30` });
    index += curve.low && curve.high ? 3 : 1;
  }
  return bands;
}

/**
 * @param {uPlot} plot
 * @param {{current: Plotted}} current
 */
function zoomTo(plot, current) {
  if (plot.select.width < 4 || !current.current.zoom) return;
  const from = plot.posToVal(plot.select.left, "x");
  const to = plot.posToVal(plot.select.left + plot.select.width, "x");
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  current.current.zoom?.(Math.floor(from), Math.ceil(to));
}

/**
 * Lines where something happened.
 * @param {uPlot} plot
 * @param {{step: number, color: string, isTick: boolean}[]} marks
 */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio || 1;
  let drawnAt = -1;
  for (const { step, color, isTick } of marks) {
    const x = Math.round(plot.valToPos(step, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width || x === drawnAt) continue;
    drawnAt = x;
    ctx.strokeStyle = color;
    ctx.setLineDash(isTick ? [] : [4, 3]);
    ctx.beginPath();
    ctx.moveTo(x, isTick ? bbox.top + bbox.height * 0.94 : bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/**
 * A colour of a line, lighter where the ground is dark.
 * @param {string} color
 */
function lineColor(color) {
  return themeShown() === "dark" ? /** @type {Record<string, string>} */ ({ "#0072b2": "#4aa8e8", "#8a6fb0": "#b79be0", "#009e73": "#2fc79b" })[color] ?? color : color;
}
