/** A table of many rows. Only visible rows are rendered. */
import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./components.js";

// The heights of `.row` in the style sheet. They are fixed, so that rows can be positioned without rendering.
const ONE_LINE = 34;
const TWO_LINES = 56;
const SPARE_ROWS = 8;

/**
 * Renders `rows` in `columns`, `{key, label, width, cell(row), from, below}`. A column with `from` is hidden in tables below
 * that width in pixels. A column with `below` is only shown in narrower tables, as a second line of each row.
 * `keyOf(row)` returns a key, `onOpen(row)` handles a click or Enter, and `openKey` is the open row.
 * Visible rows stay at their position when rows are added or removed, unless `follow` keeps the table at the first row.
 */
export function Table({
  label,
  columns,
  rows,
  keyOf,
  onOpen,
  openKey,
  follow = false,
  onScrolledAway,
  rowClass,
  empty,
}) {
  const box = useRef(null);
  const anchor = useRef({ key: null, offset: 0 });
  const [view, setView] = useState({ top: 0, height: 600, width: 1200 });
  const [active, setActive] = useState(null);
  // The row that gets the focus in the next frame. Keys that are pressed before then move on from it.
  const target = useRef(null);
  const shown = columns.filter((column) => view.width >= (column.from ?? 0) && view.width < (column.below ?? Infinity));
  const template = shown.map((column) => column.width).filter(Boolean).join(" ");
  const rowHeight = shown.some((column) => column.below) ? TWO_LINES : ONE_LINE;
  const classOf = (column) => `cell ${column.class ?? ""} ${column.below ? "second" : ""}`;

  useLayoutEffect(() => {
    const element = box.current;
    const measure = () => setView((old) => ({ ...old, height: element.clientHeight, width: element.clientWidth }));
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    measure();
    return () => observer.disconnect();
  }, []);

  // Keep the first visible row at its position when rows are added above it.
  const anchoredAt =
    follow || anchor.current.key === null ? -1 : rows.findIndex((row) => keyOf(row) === anchor.current.key);
  const wanted = anchoredAt >= 0 ? anchoredAt * rowHeight + anchor.current.offset : view.top;
  const top = follow ? 0 : Math.min(wanted, Math.max(0, rows.length * rowHeight + ONE_LINE - view.height));
  useLayoutEffect(() => {
    if ((follow || anchoredAt >= 0) && box.current.scrollTop !== top) box.current.scrollTop = top;
  }, [rows, follow]);

  const scrolled = useCallback(() => {
    const top = box.current.scrollTop;
    const first = rows[Math.floor(top / rowHeight)];
    anchor.current =
      first && (top > 0 || !follow) ? { key: keyOf(first), offset: top % rowHeight } : { key: null, offset: 0 };
    if (follow && top > rowHeight) onScrolledAway?.();
    setView((old) => (old.top === top ? old : { ...old, top }));
  }, [rows, rowHeight, follow, onScrolledAway]);

  useEffect(() => {
    if (!follow) scrolled();
  }, [follow]);

  const activeAt = active === null ? -1 : rows.findIndex((row) => keyOf(row) === active);
  const first = Math.max(0, Math.floor(top / rowHeight) - SPARE_ROWS);
  const last = Math.min(rows.length, Math.ceil((top + view.height) / rowHeight) + SPARE_ROWS);
  const drawn = [];
  for (let at = first; at < last; at += 1) drawn.push(at);
  // Always render the focused row, so that the focus is not lost.
  if (activeAt >= 0 && activeAt < first) drawn.unshift(activeAt);
  if (activeAt >= last) drawn.push(activeAt);
  // Only one row is in the tab order. Arrow keys move to the others (WAI-ARIA, grid).
  const tabbable = activeAt >= 0 ? activeAt : Math.min(Math.ceil(top / rowHeight), rows.length - 1);

  const focusRow = (to) => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    target.current = at;
    const element = box.current;
    const head = element.firstChild.offsetHeight;
    const place = at * rowHeight;
    if (place < element.scrollTop) element.scrollTop = place;
    else if (place + rowHeight + head > element.scrollTop + element.clientHeight)
      element.scrollTop = place + rowHeight + head - element.clientHeight;
    setActive(keyOf(rows[at]));
    requestAnimationFrame(() => {
      target.current = null;
      element.querySelector(`[aria-rowindex="${at + 2}"]`)?.focus({ preventScroll: true });
    });
  };
  const page = Math.max(1, Math.floor(view.height / rowHeight) - 2);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
  const keyDown = (event) => {
    if (event.target.getAttribute("role") !== "row") return;
    // Rows are counted from 1, and the head is the first.
    const at = target.current ?? Number(event.target.getAttribute("aria-rowindex")) - 2;
    if (event.key in steps) focusRow(at + steps[event.key]);
    else if (event.key === "Enter" && onOpen) onOpen(rows[at]);
    else return;
    event.preventDefault();
  };
  const click = (event, row) => {
    // Do not open a row while its text is being selected.
    if (event.target.closest("a, button") || String(getSelection())) return;
    setActive(keyOf(row));
    onOpen?.(row);
  };

  const rowOf = (at) => {
    const row = rows[at];
    const key = keyOf(row);
    return html`<div role="row" key=${key} class=${`row ${rowHeight === TWO_LINES ? "tall" : ""} ${rowClass?.(row) ?? ""} ${onOpen ? "openable" : ""}`}
      aria-rowindex=${at + 2} aria-selected=${String(key === openKey)} tabindex=${at === tabbable ? 0 : -1}
      style=${{ transform: `translateY(${at * rowHeight}px)`, gridTemplateColumns: template }}
      onFocus=${() => setActive(key)} onClick=${(event) => click(event, row)}>
      ${shown.map(
        (column) => html`<div role="gridcell" key=${column.key} class=${classOf(column)}>
        ${column.cell(row)}</div>`,
      )}
    </div>`;
  };

  return html`<div class="table" role="grid" aria-label=${label} aria-rowcount=${rows.length + 1} aria-colcount=${shown.length}
    ref=${box} onScroll=${scrolled} onKeyDown=${keyDown} tabindex=${rows.length ? -1 : 0} data-opens=${onOpen ? "" : null}>
    <div role="rowgroup" class="table-head">
      <div role="row" aria-rowindex="1" class="row" style=${{ gridTemplateColumns: template }}>
      ${shown.map(
        (column) => html`<div role="columnheader" key=${column.key} class=${`${classOf(column)} ${column.below ? "hidden" : ""}`}>
        ${column.label}</div>`,
      )}
    </div></div>
    ${
      rows.length > 0
        ? html`<div role="rowgroup" class="table-body" style=${{ height: `${rows.length * rowHeight}px` }}>${drawn.map(rowOf)}
          </div>`
        : html`<div role="rowgroup"><div role="row" aria-rowindex="2"><div role="gridcell">${empty}</div></div></div>`
    }
  </div>`;
}
