/** Markup in scripts: values are put in as text or attributes, never as markup. */

import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
