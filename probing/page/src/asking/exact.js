/**
 * Values of Arrow as they are: times and intervals as ISO 8601, decimals and binary values as texts, maps as maps.
 *
 * The reader makes floats of them, which have fewer digits and say no kind. What is nested is made so, too.
 */

import { Batch, Type } from "@uwdata/flechette";

/** How many digits of a second each unit of time has. */
const DIGITS = [0, 3, 6, 9];
const DAY_MS = 86_400_000n;
/** The last millisecond that a Date can hold. */
const LAST_MS = 8_640_000_000_000_000n;
/** What DuckDB writes for the infinities of dates, in days, and of timestamps. */
const FOREVER_DAYS = 2n ** 31n - 1n;
const FOREVER = 2n ** 63n - 1n;

/**
 * Has a batch, and all in it, give values as they are.
 * @param {any} batch
 */
export function makeExact(batch) {
  for (const child of batch.children ?? []) makeExact(child);
  const convert = converterOf(batch);
  if (!convert) return;
  batch.value = convert;
  batch.slice = Batch.prototype.slice; // that of typed arrays hands out what lies in memory
}

/**
 * @param {any} batch
 * @returns {((index: number) => any) | null} Its value at an index; null where the reader's is right.
 */
function converterOf(batch) {
  const { type, values } = batch;
  const read = batch.value.bind(batch);
  switch (type.typeId) {
    case Type.Date:
      return (index) => dateText(BigInt(values[index]), type.unit === 0 ? DAY_MS : 1n);
    case Type.Time:
      return (index) => timeText(BigInt(values[index]), DIGITS[type.unit]);
    case Type.Timestamp:
      return (index) => timestampText(values[index], DIGITS[type.unit], type.timezone ? "Z" : "");
    case Type.Interval:
      return type.unit === 2 ? (index) => intervalText(values, index) : null;
    case Type.Decimal:
      return (index) => decimalOf(BigInt(read(index)), type.scale);
    case Type.Binary:
    case Type.LargeBinary:
    case Type.BinaryView:
    case Type.FixedSizeBinary:
      return (index) => Array.from(read(index), hex).join("");
    default:
      return null;
  }
}

/**
 * @param {bigint} value
 * @param {bigint} unit In milliseconds.
 */
function dateText(value, unit) {
  return endless(value, unit === 1n ? FOREVER : FOREVER_DAYS) ?? dayText(value * unit);
}

/**
 * @param {bigint} value
 * @param {number} digits
 * @param {string} zone
 */
function timestampText(value, digits, zone) {
  const day = 86_400n * 10n ** BigInt(digits);
  const time = ((value % day) + day) % day;
  return endless(value, FOREVER) ?? `${dayText(((value - time) / day) * DAY_MS)}T${timeText(time, digits)}${zone}`;
}

/**
 * @param {bigint} value
 * @param {bigint} forever
 */
function endless(value, forever) {
  if ((value < 0n ? -value : value) !== forever) return null;
  return value < 0n ? "-infinity" : "infinity";
}

/** @param {bigint} ms A midnight. */
function dayText(ms) {
  if (ms > LAST_MS || ms < -LAST_MS) return `day ${ms / DAY_MS}`;
  return new Date(Number(ms)).toISOString().split("T")[0];
}

/**
 * @param {bigint} value Since midnight.
 * @param {number} digits
 */
function timeText(value, digits) {
  const unit = 10n ** BigInt(digits);
  const seconds = Number(value / unit);
  const parts = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const fraction = digits ? `.${String(value % unit).padStart(digits, "0")}` : "";
  return parts.map((one) => String(one).padStart(2, "0")).join(":") + fraction;
}

/**
 * @param {Uint8Array} values Months, days and nanoseconds, in 16 bytes.
 * @param {number} index
 */
function intervalText(values, index) {
  const view = new DataView(values.buffer, values.byteOffset + 16 * index, 16);
  const [months, days] = [view.getInt32(0, true), view.getInt32(4, true)];
  const nanoseconds = view.getBigInt64(8, true);
  const seconds = String(decimalOf(nanoseconds, 9)).replace(/\.?0+$/, "") || "0";
  const date = `${months ? `${months}M` : ""}${days ? `${days}D` : ""}`;
  return `P${date}${date && !nanoseconds ? "" : `T${seconds}S`}`;
}

/**
 * @param {bigint} value
 * @param {number} scale
 * @returns {bigint | string} An integer where there is no fraction, as sums of integers are.
 */
function decimalOf(value, scale) {
  if (scale <= 0) return value * 10n ** BigInt(-scale);
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, "0");
  return `${value < 0n ? "-" : ""}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

/** @param {number} byte */
const hex = (byte) => byte.toString(16).padStart(2, "0");
