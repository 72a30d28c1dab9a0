/** A JSON tree whose branches are rendered when they are opened. */
import { ExactNumber, stringify } from "./call/json.js";
import { CopyButton, html, useState } from "./components.js";

const SHOWN_AT_FIRST = 100;

/** Shows a JSON value. `open` is the number of initially open levels. */
export function JsonTree({ value, open = 2, label = "JSON" }) {
  return html`<div class="json-tree" tabindex="0" role="region" aria-label=${label}>
    <div class="json-copy"><${CopyButton} text=${stringify(value, "  ")} label="Copy JSON" /></div>
    <${Node} value=${value} open=${open} />
  </div>`;
}

function Node({ name, value, open }) {
  const key = name === undefined ? null : html`<span class="json-key">${name}</span>: `;
  if (value === null || typeof value !== "object" || value instanceof ExactNumber)
    return html`<div class="json-leaf">${key}<${Scalar} value=${value} /></div>`;
  return html`<${Branch} prefix=${key} value=${value} open=${open} />`;
}

function Scalar({ value }) {
  const kind = value === null ? "null" : value instanceof ExactNumber ? "number" : typeof value;
  return html`<span class=${`json-${kind}`}>${stringify(value)}</span>`;
}

function Branch({ prefix, value, open }) {
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(SHOWN_AT_FIRST);
  const isArray = Array.isArray(value);
  const size = isArray ? value.length : Object.keys(value).length;
  const summary = isArray ? `[${size}]` : `{${size}}`;
  if (!size) return html`<div class="json-leaf">${prefix}${isArray ? "[]" : "{}"}</div>`;
  const entries = isOpen
    ? isArray
      ? value.slice(0, shown).map((each, at) => [at, each])
      : Object.entries(value).slice(0, shown)
    : [];
  return html`<details open=${isOpen} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.target.open)}>
    <summary>${prefix}<span class="quiet">${summary}</span></summary>
    ${entries.map(([name, each]) => html`<${Node} key=${name} name=${name} value=${each} open=${open - 1} />`)}
    ${isOpen && size > shown && html`<button type="button" class="button" onClick=${() => setShown(shown + 1000)}>Show more</button>`}
  </details>`;
}
