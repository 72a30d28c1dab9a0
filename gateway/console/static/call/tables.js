/** Finds the lists of objects in a result, which are shown as tables. Pure. */

import { equal, isObject, parse } from "./json.js";

const MOST_COLUMNS = 40;

/** Return the member names of a list of objects in the order of their first use; null for other values. */
export function columnsOf(value) {
  if (!Array.isArray(value) || !value.length || !value.every(isObject)) return null;
  const names = [...new Set(value.flatMap((row) => Object.keys(row)))];
  return names.length && names.length <= MOST_COLUMNS ? names : null;
}

/** Return `{lists: [[name, rows]], others: [[name, value]]}`, or null if a tree shows the value better. */
export function tablesOf(value) {
  if (columnsOf(value)) return { lists: [["", value]], others: [] };
  if (!isObject(value)) return null;
  const entries = Object.entries(value);
  const others = entries.filter(([, each]) => !columnsOf(each));
  if (others.length === entries.length || others.some(([, each]) => isObject(each))) return null;
  return { lists: entries.filter(([, each]) => columnsOf(each)), others };
}

/** Return the JSON object or array in a text, or undefined. */
export function jsonOf(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** Whether a text block only repeats the structured content. Older clients receive a list as `result` of an object. */
export function repeats(block, structured) {
  if (block.type !== "text" || structured === undefined) return false;
  const value = jsonOf(String(block.text));
  if (value === undefined) return String(block.text) === String(structured) || String(block.text) === String(structured?.result);
  return equal(value, structured) || (isObject(structured) && equal(value, structured.result));
}
