/** What the page asks its server, with the token of the link that it was opened by. */

import { keepText, keptText } from "../kept.js";

const KEY = "probing.token";

/** An error that the server has told, with what to do next. */
export class Told extends Error {
  /** @param {{message: string, help?: string, code?: string, detail?: any}} body */
  constructor(body) {
    super(body.message);
    this.help = body.help ?? "";
    this.code = body.code ?? "";
    this.detail = body.detail ?? {};
  }
}

/**
 * Takes the token out of the address, where it stands once, and keeps it for this tab.
 * @returns {boolean} Whether there was one.
 */
export function takeToken() {
  const found = /^#token=([0-9a-f]+)$/.exec(location.hash);
  if (!found) return false;
  keepText("sessionStorage", KEY, found[1]);
  history.replaceState(null, "", location.pathname);
  return true;
}

/** @returns {boolean} Whether this tab was opened by a link with a token. */
export function hasToken() {
  return keptText("sessionStorage", KEY) !== null;
}

/**
 * Asks the server.
 * @param {string} what The route.
 * @param {object | undefined} body What is sent; nothing is fetched by GET.
 * @param {AbortSignal} [signal] Given up with it, and what runs for it ended.
 * @returns {Promise<Response>}
 */
export async function ask(what, body, signal) {
  /** @type {Record<string, string>} */
  const headers = { Authorization: `Bearer ${keptText("sessionStorage", KEY) ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  let answer;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(`/page/${what}`, { method, headers, body: sent, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Told({
      message: "The server of this page does not answer.",
      help: "It ends with its command: run `probing web` again, and open the new link.",
      code: "unreachable",
    });
  }
  if (!answer.ok) throw new Told(await bodyOf(answer));
  return answer;
}

/**
 * @param {Response} answer
 * @returns {Promise<{message: string, help?: string, code?: string, detail?: any}>}
 */
async function bodyOf(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return { message: `The server has answered with status ${answer.status}.` };
  }
}

/**
 * @param {string} what
 * @param {object} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function askJson(what, body, signal) {
  return (await ask(what, body, signal)).json();
}
