/** The calls of a step as boxes: when each began, how long it took, and in which lane it is. */

import calls from "../../sql/calls.sql";
import { PHASES, scaleColor } from "../../theme.js";

/**
 * @typedef {{name: string, kind: string, stage: string, lane: number, from: number, to: number,
 *   isOpen: boolean, memory: number | null, model?: string, words?: string}} Box `words`: what is drawn instead of the name where there is room.
 * @typedef {{boxes: Box[], lanes: number, end: number}} Boxes
 */

/** @param {number} step */
export const callsSql = (step) => calls.trim().replaceAll("$step", String(step));

/** The steps whose calls are on record, the newest first. */
export const STEPS_SQL = `SELECT step, duration,
  step IN (SELECT step FROM python.torch_trace WHERE stage <> 'step') AS has_calls
FROM python.steps
WHERE step >= (SELECT min(step) FROM python.torch_trace) ORDER BY seq DESC LIMIT 500`;

/**
 * A call that has not ended reaches to the right edge.
 * @param {import("../../asking/rows.js").Rows} rows
 * @returns {Boxes}
 */
export function boxesOf(rows) {
  const [module, kind, stage, depth, thread, memory, at, took, model] = rows.columns.map((one) => one.at);
  /** @type {Map<string, Box[]>} */
  const threads = new Map();
  let end = 0;
  for (let row = 0; row < rows.length; row++) {
    const from = Number(at(row));
    const isOpen = took(row) === null;
    const to = isOpen ? Infinity : from + Number(took(row));
    end = Math.max(end, isOpen ? from : to);
    const isWhole = stage(row) === "step";
    const box = {
      name: isWhole ? "step" : String(module(row) ?? ""), kind: String(kind(row) ?? ""),
      stage: String(stage(row)), lane: isWhole ? 0 : 1 + Number(depth(row) ?? 0), from, to, isOpen,
      memory: memory(row) === null ? null : Number(memory(row)), model: String(model(row) ?? ""),
    };
    const key = String(thread(row));
    const lane = threads.get(key);
    if (lane) lane.push(box);
    else threads.set(key, [box]);
  }
  return laidOut([...threads.values()], end);
}

/**
 * The lanes of one thread beneath those of another; the first has begun first.
 * @param {Box[][]} threads
 * @param {number} end
 * @returns {Boxes}
 */
function laidOut(threads, end) {
  let lanes = 0;
  const edge = threads.flat().some((box) => box.isOpen) ? end * 1.05 + 1e-9 : end;
  for (const boxes of threads) {
    const deepest = Math.max(...boxes.map((box) => box.lane));
    for (const box of boxes) {
      box.lane += lanes;
      box.to = Math.min(box.to, edge);
    }
    lanes += deepest + 1;
  }
  const boxes = threads.flat().sort((a, b) => a.lane - b.lane || a.from - b.from);
  return { boxes, lanes, end: edge };
}

/** @type {Record<string, string>} */
export const STAGES = {
  ...Object.fromEntries(PHASES.map(([key, , color]) => [key, color])), step: "#9a9a9a", replay: "#56b4e9",
};

/**
 * @param {string} model
 * @param {string} module
 * @returns {string} What tells a module from those of other models.
 */
export const callKey = (model, module) => JSON.stringify([model, module]);

/** What boxes are coloured by. @type {Record<string, {name: string, of: (box: Box, flops: Map<string, number> | null) => number | null, isLog?: boolean}>} */
export const MEASURES = {
  stage: { name: "stage", of: () => null },
  time: { name: "time", of: (box) => box.to - box.from },
  memory: { name: "memory at its end", of: (box) => box.memory },
  flops: { name: "FLOPs, forward", of: (box, flops) => (box.stage === "forward" ? flops?.get(callKey(box.model ?? "", box.name)) ?? null : null), isLog: true },
};

/**
 * @param {Box[]} boxes
 * @param {string} by
 * @param {Map<string, number> | null} flops Of a call of each module, where known, by `callKey`.
 * @returns {(box: Box) => string}
 */
export function painter(boxes, by, flops) {
  if (by === "stage") return (box) => STAGES[box.stage] ?? "#9a9a9a";
  const { of, isLog } = MEASURES[by];
  const valueOf = (/** @type {Box} */ box) => {
    const value = box.stage === "step" ? null : of(box, flops);
    return value !== null && isLog ? Math.log(value) : value;
  };
  let least = Infinity;
  let most = -Infinity;
  for (const box of boxes) {
    const value = valueOf(box);
    if (value === null) continue;
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return (box) => {
    const value = valueOf(box);
    return value === null ? "#9a9a9a" : scaleColor(most > least ? (value - least) / (most - least) : 0.5);
  };
}

/**
 * The calls that took longest by their own code, without the calls in them.
 * @param {Boxes} drawn
 * @param {number} most
 * @returns {{box: Box, own: number}[]}
 */
export function longest({ boxes }, most) {
  const own = new Map(boxes.map((box) => [box, box.to - box.from]));
  /** @type {Box[][]} */
  const lanes = [];
  for (const box of boxes) (lanes[box.lane] ??= []).push(box);
  lanes.forEach((inner, lane) => {
    const outer = lanes[lane - 1] ?? [];
    let index = 0;
    for (const box of inner) {
      while (index < outer.length - 1 && outer[index].to < box.to) index++;
      const around = outer[index];
      if (around && around.from <= box.from && around.to >= box.to) {
        own.set(around, (own.get(around) ?? 0) - (box.to - box.from));
      }
    }
  });
  return boxes.filter((box) => box.stage !== "step").map((box) => ({ box, own: own.get(box) ?? 0 }))
    .sort((a, b) => b.own - a.own).slice(0, most);
}
