/** The list of tools, resources and prompts next to the form, and the calls of this session. */

import { Badge, Button, Empty, html, useMemo, useState } from "../components.js";
import { count, duration, moment } from "../format.js";
import { link } from "../router.js";
import { searchOf } from "../search-text.js";
import { forgetCalls, useHistory } from "./history.js";

const SHOWN = 200;
const KINDS = [["tool", "Tools"], ["resource", "Resources"], ["template", "Resource templates"], ["prompt", "Prompts"]];
const search = searchOf((entry) => [entry.name, entry.uri, entry.title, entry.description, entry.tags?.join(" "), entry.kind]);

/** The name of an entry in the URL. */
export const targetOf = (entry) => (entry.kind === "resource" ? entry.uri : entry.name);

export function Chooser({ entries, kind, name, view }) {
  const [text, setText] = useState("");
  const [most, setMost] = useState(SHOWN);
  const found = useMemo(() => entries.filter(search(text)), [entries, text]);
  const shown = found.slice(0, most);
  const open = (event) => {
    if (event.key !== "Enter" || !found.length) return;
    event.preventDefault();
    event.target.closest(".chooser").querySelector("[data-results] a").click();
  };
  const move = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const links = [...event.currentTarget.querySelectorAll("a")];
    const next = links[links.indexOf(document.activeElement) + step];
    (next ?? (step < 0 ? event.currentTarget.closest(".chooser").querySelector("input") : null))?.focus();
  };
  return html`<nav class="chooser card" aria-label="What to call">
    <input type="search" class="search" data-search aria-label="Search tools, resources and prompts" placeholder="Search  ( / )" autocomplete="off"
      spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${open} />
    <div class="entries" data-results onKeyDown=${move}>
      ${KINDS.map(([each, title]) => [title, shown.filter((entry) => entry.kind === each), each]).filter(([, list]) => list.length).map(
        ([title, list, each]) => html`<h3 key=${each}>${title} <span class="quiet">${count(found.filter((entry) => entry.kind === each).length)}</span></h3>
        <ul>${list.map((entry) => html`<${Entry} key=${targetOf(entry)} entry=${entry} view=${view}
          isOpen=${entry.kind === kind && targetOf(entry) === name} />`)}</ul>`)}
      ${found.length > most && html`<${Button} onClick=${() => setMost(most + 1000)}>Show more of ${count(found.length)}<//>`}
      ${!found.length && html`<${Empty} title=${entries.length ? "Nothing matches" : "Nothing to call"} />`}</div>
    </nav>`;
}

function Entry({ entry, isOpen, view }) {
  const { kind, name, title, description, offered, annotations, reason } = entry;
  return html`<li><a class=${offered ? "" : "off"} href=${link("call", { [kind]: targetOf(entry), view })} aria-current=${isOpen ? "true" : null}>
    <b class="mono">${name}</b>
    ${annotations?.destructiveHint && html` <${Badge} tone="bad">destructive<//>`}${!offered && html` <${Badge} tone="warn">not available<//>`}
    <span class="about-entry">${offered ? description ?? title ?? entry.uri : reason ?? description}</span></a></li>`;
}

/** The latest calls of this page. A link opens the form with the same arguments. */
export function History() {
  const calls = useHistory();
  if (!calls.length) return null;
  return html`<section class="history card" aria-label="Calls of this browser session">
    <h2>History <${Button} onClick=${forgetCalls}>Clear history<//></h2>
    <ol>${calls.map((call) => html`<li key=${call.at}><a href=${call.href}>
      <span class="quiet">${moment(call.at)}</span> <b class="mono">${call.name}</b> <${Badge} state=${call.state} /> <span class="quiet">${duration(call.ms)}</span>
      ${call.shown && html`<code class="about-entry">${call.shown}</code>`}</a></li>`)}</ol></section>`;
}
