/** Rows by SQL: an Arrow stream of the server's, as columns. */

import { tableFromIPC } from "@uwdata/flechette";
import { makeExact } from "./exact.js";
import { ask } from "./session.js";

/**
 * @typedef {{name: string, isNumber: boolean, at: (row: number) => any}} Column
 * @typedef {{columns: Column[], length: number, truncated: string | null, notes: string[], bytes: Uint8Array}} Rows
 */

/**
 * Runs a statement.
 * @param {string} endpoint
 * @param {string} sql
 * @param {{signal?: AbortSignal, maxRows?: number, ofJob?: boolean}} [limits] `ofJob`: of all ranks of its job.
 * @returns {Promise<Rows>}
 */
export async function query(endpoint, sql, { signal, maxRows, ofJob = false } = {}) {
  const body = { endpoint, sql, max_rows: maxRows ?? null, of_job: ofJob };
  const answer = await ask("query", body, signal);
  return read(new Uint8Array(await answer.arrayBuffer()));
}

/**
 * @param {Uint8Array} bytes
 * @returns {Rows}
 */
export function read(bytes) {
  const table = tableFromIPC(bytes, { useBigInt: true, useDecimalInt: true, useMap: true });
  const columns = table.schema.fields.map((field, index) => {
    const column = table.getChildAt(index);
    column.data.forEach(makeExact);
    return {
      name: field.name,
      isNumber: NUMBERS.has(field.type.typeId),
      at: (/** @type {number} */ row) => column.at(row),
    };
  });
  const said = table.schema.metadata?.get("probing.truncated") ?? null;
  const notes = JSON.parse(table.schema.metadata?.get("probing.notes") ?? "[]");
  return { columns, length: table.numRows, truncated: said, notes, bytes };
}

/** Arrow's numbers of its types: integers, floats, decimals. */
const NUMBERS = new Set([2, 3, 7]);

/**
 * A column as numbers for a plot: what is NULL or not finite is null.
 * @param {Rows} rows
 * @param {string} name
 * @returns {(number | null)[]}
 */
export function numbers(rows, name) {
  const column = rows.columns.find((one) => one.name === name);
  if (!column) return [];
  return Array.from({ length: rows.length }, (_, row) => {
    const value = column.at(row);
    const number = value === null || value === undefined ? NaN : Number(value);
    return Number.isFinite(number) ? number : null;
  });
}

/**
 * @param {any} value
 * @returns {string} A cell as text.
 */
export function cellText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return numberText(value);
  return typeof value === "object" ? nestedText(value) : String(value);
}

/**
 * @param {number} value
 * @returns {string} With seven digits, and all of those before the point.
 */
function numberText(value) {
  if (Number.isInteger(value) || !Number.isFinite(value)) return String(value);
  return String(Number(value.toPrecision(Math.max(7, Math.ceil(Math.log10(Math.abs(value))) + 1))));
}

/**
 * @param {any} value
 * @returns {string} A list, struct or map as JSON, with all digits of integers, and names for what JSON has no number for.
 */
function nestedText(value) {
  if (value === null || value === undefined) return "null";
  if (typeof value === "bigint" || Number.isFinite(value)) return String(value);
  if (typeof value === "boolean") return String(value);
  if (typeof value !== "object") return JSON.stringify(String(value));
  if (Array.isArray(value) || ArrayBuffer.isView(value)) return `[${Array.from(/** @type {any} */ (value), nestedText).join(",")}]`;
  const pairs = value instanceof Map ? [...value] : Object.entries(value);
  return `{${pairs.map(([key, one]) => `${JSON.stringify(cellText(key))}:${nestedText(one)}`).join(",")}}`;
}

/**
 * @param {Rows} rows
 * @returns {string} All of it as RFC 4180 has it, with an empty field for NULL.
 *   A line of nothing is a pair of quotes: readers pass over empty lines.
 */
export function asCsv(rows) {
  const lines = [rows.columns.map((column) => csvField(column.name)).join(",")];
  for (let row = 0; row < rows.length; row++) {
    lines.push(rows.columns.map((column) => csvField(exactText(column.at(row)))).join(",") || '""');
  }
  return lines.join("\r\n") + "\r\n";
}

/** @param {any} value */
const exactText = (value) => (typeof value === "number" ? String(value) : cellText(value));

/** @param {string} text */
function csvField(text) {
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
