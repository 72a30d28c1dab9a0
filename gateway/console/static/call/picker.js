/** The field that selects a primitive: a combobox (WAI-ARIA) over the whole catalog that renders few entries. */

import { html, useMemo, useRef, useState } from "../components.js";
import { count } from "../format.js";

const SHOWN = 60;

/** `entries` are the entries of the catalog. `onPick` receives one. */
export function Picker({ entries, chosen, onPick }) {
  const [text, setText] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [active, setActive] = useState(0);
  const list = useRef(null);
  const words = useMemo(() => entries.map((each) => `${each.name} ${each.uri ?? ""} ${each.title ?? ""} ${each.kind}`.toLowerCase()), [entries]);
  const found = useMemo(() => {
    const parts = text.toLowerCase().split(/\s+/).filter(Boolean);
    return parts.length ? entries.filter((_, index) => parts.every((part) => words[index].includes(part))) : entries;
  }, [text, words]);
  const shown = found.slice(0, SHOWN);
  const at = Math.min(active, shown.length - 1);
  const close = () => {
    setOpen(false);
    setText("");
  };
  const pick = (entry) => {
    close();
    onPick(entry);
  };
  const go = (to) => {
    setOpen(true);
    setActive(Math.max(0, Math.min(to, shown.length - 1)));
    list.current?.children[to]?.scrollIntoView({ block: "nearest" });
  };
  const steps = { ArrowDown: () => go(isOpen ? at + 1 : 0), ArrowUp: () => go(at - 1), PageDown: () => go(at + 10), PageUp: () => go(at - 10),
    Enter: () => (isOpen && shown[at] ? pick(shown[at]) : setOpen(true)), Escape: close };
  const keys = (event) => {
    if (!steps[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    steps[event.key]();
  };
  const said = found.length > SHOWN ? `The first ${SHOWN} of ${count(found.length)}; type to find others` : `${count(found.length)} found`;
  // On mousedown, because a click comes after the field has lost the focus and closed the list.
  return html`<div class="picker"><label for="call-name">What to call</label>
    <input id="call-name" data-search role="combobox" autocomplete="off" spellcheck=${false} aria-expanded=${String(isOpen)} aria-controls="call-list"
      aria-autocomplete="list"
      aria-activedescendant=${isOpen && shown[at] ? `call-option-${at}` : undefined} placeholder=${chosen ? undefined : "a tool, resource or prompt"}
      value=${isOpen ? text : chosen ?? ""} onInput=${(event) => { setText(event.target.value); setActive(0); setOpen(true); }}
      onClick=${() => setOpen(true)} onBlur=${close} onKeyDown=${keys} />
    <ul id="call-list" role="listbox" aria-label="Catalog" ref=${list} hidden=${!isOpen}>
      ${isOpen && shown.map((entry, index) => html`<li key=${`${entry.kind} ${entry.uri ?? entry.name}`} id=${`call-option-${index}`} role="option"
        aria-selected=${String(index === at)} onMouseDown=${(event) => { event.preventDefault(); pick(entry); }}>
        <b>${entry.name}</b> <span class="quiet">${entry.kind}${entry.offered ? "" : ", not available"} ${entry.title ?? entry.uri}</span></li>`)}
    </ul>
    ${isOpen && html`<p class="quiet" role="status">${said}</p>`}</div>`;
}
