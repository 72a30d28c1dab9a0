/** The frame of the console: navigation, sign-in, connection state, reload notes and the current page. */
import { get, onSignedOut, remove, signedOut } from "./api.js";
import { Badge, Button, html, render, useEffect, useErrorBoundary, useState } from "./components.js";
import { forgetCalls } from "./call/history.js";
import { forgetDocuments } from "./data.js";
import { connect, disconnect, onEvent, useLive, wantCalls } from "./events.js";
import { counted } from "./format.js";
import { Keys } from "./keys.js";
import { HOME, currentRoute, followLinks, hadInvalidToken, link, useRoute } from "./router.js";
import { SignIn } from "./sign-in.js";

const EXPIRED_LINK =
  "This link is invalid or has expired. Use the newest link from the gateway's log. A restart creates a new link unless " +
  "MCP_GATEWAY_SECRET_KEY is set.";

/** Name, label, module, and the key that opens the page after "g". */
const PAGES = [
  ["overview", "Overview", "./pages/overview.js", "o"],
  ["catalog", "Catalog", "./pages/catalog.js", "c"],
  ["call", "Call", "./call/page.js", "a"],
  ["traffic", "Traffic", "./pages/traffic.js", "t"],
  ["sessions", "Sessions", "./pages/sessions.js", "s"],
  ["tasks", "Tasks", "./pages/tasks.js", "k"],
  ["upstreams", "Upstreams", "./pages/upstreams.js", "u"],
  ["config", "Config", "./pages/config.js", "f"],
  ["limits", "Limits", "./pages/limits.js", "l"],
];
const NOTE_MS = 8000;
const modules = new Map();

/** Import the module of a page once. Its default export is the component. */
function loadPage(name) {
  if (!modules.has(name)) {
    const file = PAGES.find(([page]) => page === name)?.[2];
    const loading = file ? import(file) : Promise.reject(new Error(`Unknown page “${name}”.`));
    modules.set(
      name,
      loading.then((module) => ({ Page: module.default })).catch((error) => ({ error })),
    );
    // Try again when the page is opened again.
    loading.catch(() => modules.delete(name));
  }
  return modules.get(name);
}

function App() {
  const [facts, setFacts] = useState(null);
  const [state, setState] = useState("asking");
  const [problem, setProblem] = useState("");
  const begin = async () => {
    try {
      setFacts(await get(""));
      setState("in");
      setProblem("");
      connect();
    } catch (error) {
      if (error.status === 401) return;
      setProblem(error.message);
      if (error.status === 403) setState("forbidden");
      else setTimeout(begin, 2000);
    }
  };
  useEffect(() => {
    begin();
    return onSignedOut(() => {
      disconnect();
      forgetDocuments();
      forgetCalls();
      setFacts(null);
      setState("out");
    });
  }, []);
  // A reload can change the title, the endpoint and the caller's scopes.
  useEffect(() => onEvent("hello", () => get("").then(setFacts, () => {})), []);
  if (state === "out") return html`<${SignIn} onSignedIn=${begin} problem=${hadInvalidToken ? EXPIRED_LINK : ""} />`;
  if (state === "forbidden") return html`<${SignIn} onSignedIn=${begin} problem=${problem} />`;
  if (state === "asking") {
    return html`<header class="top"><span class="brand">mcp-gateway</span></header>
      <main class="main">${problem && html`<p class="note bad" role="alert">${problem}. Trying again…</p>`}</main>`;
  }
  return html`<${Frame} facts=${facts} />`;
}

function Frame({ facts }) {
  const route = useRoute();
  const label = PAGES.find(([page]) => page === route.page)?.[1] ?? route.page;
  useEffect(() => {
    document.title = `${facts.label} – ${label}`;
  }, [label, facts]);
  // Calls are most of the stream, and only this page shows them.
  useEffect(() => wantCalls(route.page === "traffic"), [route.page]);
  return html`<a class="skip" href="#main">Skip to content</a>
    <${Header} facts=${facts} />
    <${Navigation} current=${route.page} label=${label} />
    <main class="main" id="main" tabindex="-1"><${CurrentPage} route=${route} facts=${facts} /></main>
    <${ReloadNote} />`;
}

/** The links to the pages. On a narrow screen, they are folded into a menu. */
function Navigation({ current, label }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => setOpen(false), [current]);
  const close = (event) => event.key === "Escape" && setOpen(false);
  return html`<nav class="nav" aria-label="Pages" onKeyDown=${close}>
    <button type="button" class="button menu" aria-expanded=${String(isOpen)} aria-controls="pages" onClick=${() => setOpen(!isOpen)}>
      <span aria-hidden="true">☰</span> ${label}</button>
    <ul id="pages" class=${isOpen ? "open" : ""}>${PAGES.map(
      ([page, text, , key]) => html`<li key=${page}>
      <a href=${link(page)} title=${`g ${key}`} aria-current=${page === current ? "page" : null} onClick=${() => setOpen(false)}
        onPointerEnter=${() => loadPage(page)}>${text}</a></li>`,
    )}</ul>
  </nav>`;
}

function Header({ facts }) {
  const connection = useLive((live) => live.connection);
  const state = useLive((live) => (live.draining ? "draining" : (live.status?.state ?? null)));
  const down = useLive((live) => live.status?.upstreamsDown ?? 0);
  const problems = useLive((live) => live.status?.problems ?? 0);
  const signOut = async () => {
    // Show the sign-in form even if the gateway does not respond.
    await remove("session").catch(() => {});
    signedOut();
  };
  const words = {
    open: "Live",
    connecting: "Connecting…",
    lost: "Connection lost, trying again…",
    closed: "Not connected",
  };
  return html`<header class="top">
    <a class="brand" href=${link(HOME)}>${facts.label}</a>
    ${state && (state !== "ready" || (!down && !problems)) && html`<${Badge} state=${state} />`}
    ${problems > 0 && html`<a href=${link("config", { tab: "problems" })}><${Badge} tone="bad">${counted(problems, "error")} in the file<//></a>`}
    ${down > 0 && html`<a href=${link("upstreams")}><${Badge} tone="bad">${counted(down, "upstream")} down<//></a>`}
    <span class="connection" role="status" aria-live="polite" data-connection=${connection}>
      <span class=${`dot ${connection === "open" ? "ok" : "bad"}`} aria-hidden="true"></span>${words[connection]}</span>
    <span class="grow"></span>
    ${facts.caller?.principal && html`<span class="caller" title=${`Scopes: ${facts.caller.scopes?.join(", ") || "none"}`}>${facts.caller.principal}</span>`}
    <${Keys} pages=${PAGES} />
    <${ThemeButton} />
    <${Button} onClick=${signOut}>Sign out<//>
  </header>`;
}

function ThemeButton() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? system);
  const next = theme === "dark" ? "light" : "dark";
  const change = () => {
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("mcp-gateway-theme", next);
    } catch {
      // Without storage, the choice lasts until the page is closed.
    }
    setTheme(next);
  };
  return html`<${Button} label=${`Switch to ${next} colours`} onClick=${change}>${theme === "dark" ? "☀" : "☾"}<//>`;
}

/** Return the page's component when its module is loaded. Until then, return the previous one. */
function CurrentPage({ route, facts }) {
  const [loaded, setLoaded] = useState({ name: null });
  useEffect(() => {
    let current = true;
    loadPage(route.page).then((module) => {
      if (!current) return;
      const isFirst = loaded.name === null;
      setLoaded({ name: route.page, ...module });
      // Focus the heading of the new page, as browsers do after loading a page.
      if (!isFirst) requestAnimationFrame(() => document.querySelector("#main h1")?.focus({ preventScroll: true }));
    });
    return () => {
      current = false;
    };
  }, [route.page]);
  if (loaded.error) {
    return html`<h1 tabindex="-1">Page not available</h1><p class="note bad" role="alert">${loaded.error.message}</p>
      <p><a href=${link(HOME)}>Go to the overview</a></p>`;
  }
  if (!loaded.Page) return null;
  // While the next page loads, the previous one must not read its parameters.
  const query = loaded.name === route.page ? route.query : new URLSearchParams();
  return html`<${Guarded} key=${loaded.name}><${loaded.Page} query=${query} facts=${facts} /><//>`;
}

/** Shows an error in a page instead of an empty page. */
function Guarded({ children }) {
  const [error, tryAgain] = useErrorBoundary();
  if (!error) return children;
  return html`<h1 tabindex="-1">This page failed</h1>
    <p class="note bad" role="alert">${String(error)}</p>
    <p><${Button} onClick=${tryAgain}>Try again<//></p>`;
}

/** Shows the result of the last reload for some seconds. An error stays until it is closed. */
function ReloadNote() {
  const [reload, setReload] = useState(null);
  useEffect(() => onEvent("reload", setReload), []);
  useEffect(() => {
    if (!reload || reload.outcome === "refused") return;
    const timer = setTimeout(() => setReload(null), NOTE_MS);
    return () => clearTimeout(timer);
  }, [reload]);
  return html`<div class="notes" role="status" aria-live="polite">
    ${
      reload &&
      html`<div class=${`note ${reload.outcome === "refused" ? "bad" : "ok"}`} data-reload=${reload.outcome}>
      <span>${reloadText(reload)}</span> <a href=${link("config")}>Show</a>
      <${Button} label="Close" onClick=${() => setReload(null)}>✕<//>
    </div>`
    }
  </div>`;
}

function reloadText(reload) {
  if (reload.outcome === "refused") {
    return `Reload failed: ${counted(reload.problems?.length ?? 0, "problem")}. The previous catalog is still served.`;
  }
  const changes = reload.changes ?? [];
  if (!changes.length) return `Generation ${reload.generation} loaded without changes.`;
  const parts = ["added", "changed", "removed"].map((change) => [
    change,
    changes.filter((each) => each.change === change).length,
  ]);
  return `Generation ${reload.generation} loaded: ${parts
    .filter(([, size]) => size)
    .map(([change, size]) => `${size} ${change}`)
    .join(", ")}.`;
}

// Load the module of the page during the request for the session.
loadPage(currentRoute().page);
followLinks();
render(html`<${App} />`, document.getElementById("app"));
