/** Preact, its hooks and htm as one module. */
import htm from "./htm.js";
import { h } from "./preact.js";

export * from "./preact.js";
export * from "./hooks.js";
export const html = htm.bind(h);
