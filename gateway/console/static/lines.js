/** A long text with numbered lines. Only visible lines are rendered. */
import { Button, Coloured, CopyButton, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./components.js";
import { count } from "./format.js";
import { colouredLines } from "./yaml.js";

// The height of `.lines .line` in the style sheet.
const LINE = 20;
const SPARE_LINES = 20;

/** Shows YAML. Scrolls to `line` and marks it. `marks` maps line numbers to tones. */
export function Lines({ text, label, line, marks = {} }) {
  const box = useRef(null);
  const lines = useMemo(() => text.split("\n"), [text]);
  const coloured = useMemo(() => colouredLines(text), [text]);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [search, setSearch] = useState("");
  const [match, setMatch] = useState(0);
  const found = useMemo(() => {
    const wanted = search.toLowerCase();
    return wanted ? lines.flatMap((each, at) => (each.toLowerCase().includes(wanted) ? [at + 1] : [])) : [];
  }, [lines, search]);
  const marked = found.length ? found[match % found.length] : line;

  useLayoutEffect(() => {
    const observer = new ResizeObserver(() =>
      setView((old) => ({ ...old, height: box.current?.clientHeight ?? old.height })),
    );
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (marked) box.current.scrollTop = Math.max(0, (marked - 1) * LINE - box.current.clientHeight / 2);
  }, [marked]);

  const first = Math.max(0, Math.floor(view.top / LINE) - SPARE_LINES);
  const shown = coloured.slice(first, Math.ceil((view.top + view.height) / LINE) + SPARE_LINES);
  const toneOf = (number) => (number === marked ? "here" : (marks[number] ?? ""));
  const next = (event) => {
    if (event.key === "Enter" && found.length)
      setMatch((match + (event.shiftKey ? found.length - 1 : 1)) % found.length);
  };
  return html`<div class="lines-tools">
      <input type="search" class="search" data-search aria-label=${`Find in ${label}`} placeholder="Find  ( / )" value=${search} onKeyDown=${next}
        onInput=${(event) => (setSearch(event.target.value), setMatch(0))} />
      ${
        search &&
        html`<span role="status" class="quiet">
          ${found.length ? `${count((match % found.length) + 1)} of ${count(found.length)}` : "Not found"}</span>
        <${Button} disabled=${!found.length} onClick=${() => setMatch(match + 1)}>Next<//>`
      }
      <${CopyButton} text=${text} />
    </div>
    <div class="lines" ref=${box} tabindex="0" role="region" aria-label=${label}
      onScroll=${(event) => setView((old) => ({ ...old, top: event.target.scrollTop }))}>
      <div style=${{ height: `${lines.length * LINE}px` }}>
        <pre style=${{ transform: `translateY(${first * LINE}px)` }}>${shown.map(
          (each, at) => html`<span key=${first + at}
          class=${`line ${toneOf(first + at + 1)}`}><i aria-hidden="true">${first + at + 1}</i><${Coloured} parts=${each} />${"\n"}</span>`,
        )}</pre>
      </div>
    </div>`;
}
