/** Questions that this browser keeps for this address: saved by name, and asked before. */

import { keepText, keptText } from "../../kept.js";

const OWN = "probing.questions";
const EARLIER = "probing.history";
const MOST = 50;

/** @typedef {{name: string, sql: string}} Question */

/**
 * @param {string} key
 * @returns {Question[]}
 */
function read(key) {
  try {
    const found = JSON.parse(keptText("localStorage", key) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/** @returns {Question[]} */
export const kept = () => read(OWN);

/** @returns {Question[]} The last first. */
export const history = () => read(EARLIER);

/**
 * @param {string} name
 * @param {string} sql
 * @returns {Question[]} All that are saved.
 */
export function keep(name, sql) {
  const all = [...kept().filter((one) => one.name !== name), { name, sql }];
  keepText("localStorage", OWN, JSON.stringify(all));
  return all;
}

/** @param {string} sql */
export function remember(sql) {
  const name = sql.replace(/\s+/g, " ").trim().slice(0, 100);
  const all = [{ name, sql }, ...history().filter((one) => one.sql !== sql)].slice(0, MOST);
  keepText("localStorage", EARLIER, JSON.stringify(all));
}
