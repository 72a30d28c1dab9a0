/** Components that all pages share. Texts from tools and clients are only inserted as text nodes. */
import { ago, moment } from "./format.js";
import { setQuery } from "./router.js";
import { colouredLines } from "./yaml.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";

export * from "./vendor/htm-preact.js";

/** The head of a page: its h1, which gets the focus when the page opens, a summary and buttons. */
export function PageHead({ title, summary, children }) {
  return html`<div class="page-head">
    <h1 tabindex="-1">${title}</h1>
    ${summary && html`<p class="summary">${summary}</p>`}
    <div class="tools">${children}</div>
  </div>`;
}

/** Colours by state. Badges also contain the state as text. */
const TONES = {
  ok: "ok",
  ready: "ok",
  up: "ok",
  connected: "ok",
  loaded: "ok",
  completed: "ok",
  open: "ok",
  added: "ok",
  warning: "warn",
  degraded: "warn",
  connecting: "warn",
  draining: "warn",
  input_required: "warn",
  changed: "warn",
  waiting: "warn",
  starting: "warn",
  unchanged: "quiet",
  error: "bad",
  failed: "bad",
  down: "bad",
  backing_off: "bad",
  lost: "bad",
  refused: "bad",
  tool_error: "bad",
  protocol_error: "bad",
  removed: "bad",
  unavailable: "bad",
  stopped: "bad",
  running: "busy",
  working: "busy",
  cancelled: "quiet",
};

export const toneOf = (state) => TONES[state] ?? "quiet";

export function Badge({ state, tone = toneOf(state), children }) {
  return html`<span class=${`badge ${tone}`}>${children ?? String(state).replaceAll("_", " ")}</span>`;
}

export const Tags = ({ names }) => names?.map((name) => html`<span class="tag" key=${name}>${name}</span>`);

/** A time of day, with the full time as its title. */
export function Moment({ at, relative = false }) {
  return at ? html`<time datetime=${at} title=${at}>${relative ? ago(at) : moment(at)}</time>` : "–";
}

/** Explains an empty list. */
export const Empty = ({ title, children }) =>
  html`<div class="empty"><p class="empty-title">${title}</p>${children}</div>`;

/** The error of a document, or a note that it is loading. */
export function Waiting({ document }) {
  if (document.error) return html`<div class="note bad" role="alert">${document.error.message}</div>`;
  return document.data ? null : html`<p class="waiting" role="status" aria-busy="true">Loading…</p>`;
}

/** A button. `kind` is "primary", "danger" or "danger-primary". */
export function Button({ kind = "", label, children, ...rest }) {
  return html`<button type="button" class=${`button ${kind}`} aria-label=${label} title=${label} ...${rest}>${children}
    </button>`;
}

export function CopyButton({ text, label = "Copy" }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      // Browsers have no clipboard over http, except on loopback.
      setDone("Cannot copy");
    }
    setTimeout(() => setDone(""), 1500);
  };
  return html`<${Button} onClick=${copy}><span aria-live="polite">${done || label}</span><//>`;
}

/** The search field of a page. "/" focuses it, and its text is the URL parameter `q`. */
export function Search({ query, label, name = "q" }) {
  const [text, setText] = useState(query.get(name) ?? "");
  const typed = useRef(text);
  const given = query.get(name) ?? "";
  // Before the next key press, which an effect could overwrite.
  useLayoutEffect(() => {
    if (given !== typed.current) setText((typed.current = given));
  }, [given]);
  const change = (value) => {
    setText((typed.current = value));
    setQuery({ [name]: value }, { replace: true });
  };
  return html`<input type="search" class="search" data-search aria-label=${label} placeholder=${`${label}  ( / )`} value=${text}
    autocomplete="off" spellcheck=${false} onInput=${(event) => change(event.target.value)} />`;
}

/** A choice that sets a URL parameter. `options` are `[value, label]` or values. */
export function Choice({ query, name, label, options, all = "All" }) {
  const chosen = query.get(name) ?? "";
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  if (chosen && !pairs.some(([value]) => value === chosen)) pairs.push([chosen, chosen]);
  return html`<label class=${`choice ${chosen && "on"}`}><span>${label}</span>
    <select value=${chosen} onChange=${(event) => setQuery({ [name]: event.target.value })}>
      <option value="" selected=${chosen === ""}>${all}</option>
      ${pairs.map(
        ([value, text]) => html`<option key=${value} value=${value} selected=${value === chosen}>${text}
        </option>`,
      )}
    </select></label>`;
}

/**
 * The search field and the filters of a list, which are parameters of the URL. `choices` are properties of `Choice`. The
 * parameters `chips` are set by links, and shown only while they are set.
 */
export function Filters({ query, label, choices = [], chips = [] }) {
  const names = ["q", ...choices.map(({ name }) => name), ...chips];
  const clear = () => setQuery(Object.fromEntries(names.map((name) => [name, null])));
  return html`<div class="filters" role="search" aria-label="Filters">
    <${Search} query=${query} label=${label} />
    ${choices.map((choice) => html`<${Choice} key=${choice.name} query=${query} ...${choice} />`)}
    ${chips
      .filter((name) => query.get(name))
      .map(
        (name) => html`<button type="button" class="chip" key=${name} title="Remove this filter"
        onClick=${() => setQuery({ [name]: null })}>${name} <b>${query.get(name)}</b> <span aria-hidden="true">✕</span></button>`,
      )}
    ${names.some((name) => query.get(name)) && html`<${Button} onClick=${clear}>Clear filters<//>`}
  </div>`;
}

/** Names and values, one pair per line. Pairs without a value are omitted. */
export function Facts({ pairs }) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts">
    ${shown.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

/** The parts of a line of YAML, in colours. */
export const Coloured = ({ parts }) => parts.map(([kind, text]) => (kind ? html`<span class=${`yaml-${kind}`}>${text}</span>` : text));

export function Code({ text, label, wrap = false, isYaml = false }) {
  const shown = isYaml ? colouredLines(text).map((parts) => html`<${Coloured} parts=${[...parts, ["", "\n"]]} />`) : text;
  return html`<pre class=${`code ${wrap ? "wrap" : ""}`} tabindex="0" role="region" aria-label=${label ?? "Text"}>${shown}
    </pre>`;
}

/** A problem of the file: path, message, and the line with a caret. */
export function Problem({ problem, href }) {
  const where = [problem.file, problem.line, problem.column]
    .filter((part) => part !== null && part !== undefined)
    .join(":");
  const tone = problem.severity === "warning" ? "warn" : "bad";
  return html`<div class=${`problem ${tone}`}>
    <p><${Badge} tone=${tone}>${problem.severity ?? "error"}<//> ${
      where &&
      (href
        ? html`<a href=${href}>${where}
      </a>`
        : html`<code>${where}</code>`)
    }
      ${problem.path && html` <code>${problem.path}</code>`}</p>
    <p class="problem-message">${problem.message}</p>
    ${problem.excerpt && html`<${Excerpt} text=${problem.excerpt} />`}
  </div>`;
}

const isCaret = (line) => /^\s*\|\s*\^+\s*$/.test(line);

/** Lines of a file with a caret below the location. */
export function Excerpt({ text }) {
  const box = useRef(null);
  const lines = String(text).replace(/\n$/, "").split("\n");
  // On a narrow screen, the caret can be outside of the visible part.
  useEffect(() => {
    const { scrollWidth, clientWidth } = box.current;
    const caret = lines.find(isCaret)?.indexOf("^") ?? 0;
    box.current.scrollLeft = (caret / Math.max(...lines.map((line) => line.length))) * scrollWidth - clientWidth / 2;
  }, [text]);
  return html`<pre class="code excerpt" ref=${box} tabindex="0" role="region" aria-label="Excerpt">${lines.map(
    (line, at) => html`<span key=${at} class=${isCaret(line) ? "caret" : ""}>${`${line}\n`}</span>`,
  )}</pre>`;
}

/** A bar that shows the used share of a limit. */
export function Meter({ used, limit, label }) {
  if (!limit) return html`<span class="quiet">no limit</span>`;
  const percent = Math.min(100, (used / limit) * 100);
  const tone = percent >= 90 ? "bad" : percent >= 70 ? "warn" : "ok";
  return html`<div class=${`meter ${tone}`} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax=${limit}
    aria-valuenow=${Math.min(used, limit)} aria-valuetext=${`${used} of ${limit}`}><div style=${{ width: `${percent}%` }}>
      </div></div>`;
}

const OVERLAY = matchMedia("(max-width: 1099.9px)");
const BEHIND = ".nav, .page-head, .filters, .tabs, .split > .table";

/**
 * The details of the open row of a list. Escape or the button closes them and focuses the row again. On a narrow screen,
 * they cover the page, and the keyboard cannot reach the page.
 */
export function Panel({ title, onClose, children, actions }) {
  const heading = useRef(null);
  useEffect(() => {
    const covered = OVERLAY.matches
      ? [...document.querySelectorAll(BEHIND)].filter((each) => !heading.current.closest(".panel").contains(each))
      : [];
    for (const each of covered) each.inert = true;
    if (covered.length) heading.current.focus();
    return () => {
      for (const each of covered) each.inert = false;
    };
  }, []);
  const close = () => {
    onClose();
    requestAnimationFrame(() =>
      document.querySelector(".split [role=row][tabindex='0']")?.focus({ preventScroll: true }),
    );
  };
  return html`<aside class="panel" aria-label="Details" data-panel>
    <div class="panel-head">
      <h2 tabindex="-1" ref=${heading}>${title}</h2>
      ${actions}
      <${Button} label="Close details" data-close onClick=${close}>✕<//>
    </div>
    <div class="panel-body" tabindex="0" role="region" aria-label=${`Details of ${title}`}>${children}</div>
  </aside>`;
}

/** Tabs. `tabs` are `[value, label]`. */
export function Tabs({ tabs, value, onChange, label }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex(([each]) => each === value);
    const next = (at + step + tabs.length) % tabs.length;
    onChange(tabs[next][0]);
    event.currentTarget.children[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map(
      ([each, text]) => html`<button type="button" role="tab" key=${each} aria-selected=${String(each === value)}
      tabindex=${each === value ? 0 : -1} onClick=${() => onChange(each)}>${text}</button>`,
    )}
  </div>`;
}

/** A modal dialog. The browser keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, isDestructive, children }) {
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      opener?.focus?.();
    };
  }, []);
  return html`<dialog ref=${element} class=${isDestructive ? "destructive" : ""} aria-label=${title} onClose=${onClose} onCancel=${onClose}>
    <h2>${isDestructive && html`<span aria-hidden="true">⚠ </span>`}${title}</h2>${children}
  </dialog>`;
}

/** A button that asks for confirmation, and shows why its action failed. */
export function ConfirmButton({ children, title, question, action, ...rest }) {
  const [open, setOpen] = useState(false);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    setProblem("");
    try {
      await action();
      setOpen(false);
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  return html`<${Button} kind="danger" onClick=${() => setOpen(true)} ...${rest}>${children}<//>
    ${
      open &&
      html`<${Dialog} title=${title} isDestructive onClose=${() => setOpen(false)}>
      <p>${question}</p>
      ${problem && html`<p class="note bad" role="alert">${problem}</p>`}
      <div class="dialog-buttons">
        <${Button} onClick=${() => setOpen(false)}>Keep<//>
        <${Button} kind="danger-primary" disabled=${busy} onClick=${run}>${children}<//>
      </div>
    <//>`
    }`;
}
