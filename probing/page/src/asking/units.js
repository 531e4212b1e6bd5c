/** Quantities in words. What was not measured is a dash, never 0. */

const NONE = "–";

/**
 * @param {number | null | undefined} seconds
 * @param {number} [digits]
 */
export function secondsText(seconds, digits) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds >= 86400) return `${short(seconds / 86400, digits)} d`;
  if (seconds >= 3600) return `${short(seconds / 3600, digits)} h`;
  if (seconds >= 120) return `${short(seconds / 60, digits)} min`;
  if (seconds >= 1) return `${short(seconds, digits)} s`;
  if (seconds >= 1e-3) return `${short(seconds * 1e3, digits)} ms`;
  return seconds === 0 ? "0 s" : `${short(seconds * 1e6, digits)} µs`;
}

/**
 * @param {number | null | undefined} bytes
 * @param {number} [digits]
 */
export function bytesText(bytes, digits) {
  if (bytes === null || bytes === undefined || !Number.isFinite(bytes)) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short(value, digits)} ${units[unit]}`;
}

/**
 * @param {number | string | null | undefined} value A number, or the name of one not finite.
 * @param {number} [digits]
 */
export function numberText(value, digits) {
  if (value === null || value === undefined) return NONE;
  return typeof value === "string" ? value : short(value, digits);
}

/**
 * As `units.figure` of the command line writes it: by powers of ten only what else is hard to read.
 * @param {number} value
 * @param {number} [digits]
 */
function short(value, digits = 3) {
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-4)) return value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  if (size >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) < 1000 ? String(rounded) : rounded.toLocaleString("en");
}

/**
 * A file as people know it: that of a library from the library's folder on.
 * @param {string} file
 */
export function shortPath(file) {
  const library = /(?:site-packages|dist-packages|lib\/python3[^/]*)\/(.+)$/.exec(file);
  if (library) return library[1];
  return file.startsWith("/") ? file.split("/").slice(-2).join("/") : file;
}

/**
 * Whether it is no code of the program's own; what was typed in, as `<stdin>`, is.
 * @param {string} file
 */
export const isLibrary = (file) => /site-packages|dist-packages|lib\/python3|\.so(?:\.|$)|^<frozen /.test(file) || !/\.py$|^[/<]/.test(file);

/** So many digits are told of a tick, or more where two would read alike. */
const DIGITS = [3, 4, 5, 6, 8];

/**
 * @param {(number | null)[]} ticks On a scale of powers those that have no room for a text are null.
 * @param {(value: number, digits?: number) => string} format
 * @returns {string[]} Their texts, no two of them alike.
 */
export function ticksText(ticks, format) {
  const told = ticks.filter((tick) => tick !== null);
  const all = DIGITS.map((digits) => ticks.map((tick) => (tick === null ? "" : format(tick, digits))));
  return all.find((texts) => new Set(texts.filter(Boolean)).size === told.length) ?? all[0];
}
