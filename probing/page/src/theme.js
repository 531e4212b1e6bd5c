/** Dark and light, and the colours that mean something. */

import { useEffect, useState } from "preact/hooks";
import { keepText, keptText } from "./kept.js";

const KEY = "probing.theme";
const QUERY = matchMedia("(prefers-color-scheme: dark)");

/** The phases of a step, in their order; colours of Okabe and Ito, told apart by all eyes. */
export const PHASES = [
  ["data_wait", "data wait", "#e69f00"],
  ["to_device", "to device", "#f0e442"],
  ["forward", "forward", "#56b4e9"],
  ["loss", "loss", "#cc79a7"],
  ["backward", "backward", "#0072b2"],
  ["gradient_sync", "waiting for ranks", "#d55e00"],
  ["gradients", "gradients", "#8a6fb0"],
  ["optimizer", "optimizer", "#009e73"],
  ["other", "other", "#9a9a9a"],
];

/** @returns {"dark" | "light"} */
function themeNow() {
  const chosen = keptText("localStorage", KEY);
  if (chosen === "dark" || chosen === "light") return chosen;
  return QUERY.matches ? "dark" : "light";
}

/** @returns {string} The theme that is shown: on paper it is light. */
export const themeShown = () => document.documentElement.dataset.theme ?? "light";

addEventListener("beforeprint", () => (document.documentElement.dataset.theme = "light"));
addEventListener("afterprint", () => (document.documentElement.dataset.theme = themeNow()));

/** @returns {["dark" | "light", () => void]} The theme, and what changes it. */
export function useTheme() {
  const [theme, setTheme] = useState(themeNow);
  useEffect(() => {
    const look = () => setTheme(themeNow());
    QUERY.addEventListener("change", look);
    return () => QUERY.removeEventListener("change", look);
  }, []);
  document.documentElement.dataset.theme = theme;
  const change = () => {
    keepText("localStorage", KEY, theme === "dark" ? "light" : "dark");
    setTheme(themeNow());
  };
  return [theme, change];
}

/** @param {string} name A variable of the style. */
export function colorOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/**
 * A colour between little and much, which grows darker or lighter evenly (cividis).
 * @param {number} share From 0 to 1.
 */
export function scaleColor(share) {
  const stops = [[0, 34, 78], [65, 77, 107], [124, 123, 120], [188, 175, 111], [254, 232, 56]];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const below = Math.min(Math.floor(at), stops.length - 2);
  const mixed = stops[below].map((low, index) => Math.round(low + (stops[below + 1][index] - low) * (at - below)));
  return `rgb(${mixed.join(",")})`;
}
