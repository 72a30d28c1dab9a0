/** The keys that work on every page, and the dialog that lists them. */
import { Button, Dialog, html, useEffect, useState } from "./components.js";
import { link, navigate } from "./router.js";

/** After "g", the key of a page is expected within this time. */
const SEQUENCE_MS = 1500;

const GENERAL = [
  ["?", "Show this list"],
  ["/", "Search"],
  ["↑ ↓", "Move in a list. Page Up, Page Down, Home and End work too"],
  ["Enter", "Open the row"],
  ["Esc", "Close the details"],
  ["Ctrl Enter", "Run the call"],
];

const Key = ({ text }) => text.split(" ").map((each) => html`<kbd key=${each}>${each}</kbd> `);

function handleTyped(event) {
  if (!event.target.matches?.("[data-search]")) return;
  if (event.key === "Escape") event.target.blur();
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  document.querySelector("[role=grid] [role=row][tabindex='0'], [data-results] a")?.focus();
}

function focusSearch() {
  const field = document.querySelector("[data-search]");
  field?.focus();
  field?.select();
}

/** A button that lists the keys. `pages` are `[page, label, module, key]`. */
export function Keys({ pages }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    let begun = -Infinity;
    const keys = (event) => {
      if (event.target.closest?.("input, textarea, select, [contenteditable], dialog")) return handleTyped(event);
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const page = performance.now() - begun < SEQUENCE_MS && pages.find(([, , , key]) => key === event.key);
      begun = event.key === "g" && !page ? performance.now() : -Infinity;
      if (page) navigate(link(page[0]));
      else if (event.key === "?") setOpen(true);
      else if (event.key === "/") focusSearch();
      else if (event.key === "Escape") document.querySelector("[data-panel] [data-close]")?.click();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", keys);
    return () => document.removeEventListener("keydown", keys);
  }, []);
  const lines = [...GENERAL, ...pages.map(([, label, , key]) => [`g ${key}`, `Go to ${label}`])];
  return html`<${Button} class="button keys-button" label="Keyboard shortcuts" onClick=${() => setOpen(true)}>?<//>
    ${
      isOpen &&
      html`<${Dialog} title="Keyboard shortcuts" onClose=${() => setOpen(false)}>
      <dl class="keys">${lines.map(([key, text]) => html`<div key=${key}><dt><${Key} text=${key} /></dt><dd>${text}</dd></div>`)}</dl>
      <div class="dialog-buttons"><${Button} onClick=${() => setOpen(false)}>Close<//></div>
    <//>`
    }`;
}
