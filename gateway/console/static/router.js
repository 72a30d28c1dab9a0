/** The state of the page in the URL: `<base><page>?<query>`, kept by the history API under any prefix. */
import { useEffect, useState } from "./vendor/htm-preact.js";

/** The URL of the console, `…/-/console/`: this file is `<base>static/router.js`. */
export const base = new URL("../", import.meta.url);

export const HOME = "overview";

const listeners = new Set();

/** Whether the page was opened by a link whose token was not accepted. */
export const hadInvalidToken = forgetToken();
let current = read();

/** Remove a rejected token from the URL: it can be a key, and the browser's history would keep it. */
function forgetToken() {
  const url = new URL(location.href);
  if (!url.searchParams.has("token")) return false;
  url.searchParams.delete("token");
  history.replaceState(history.state, "", url);
  return true;
}

function read() {
  const inside = location.pathname.startsWith(base.pathname) ? location.pathname.slice(base.pathname.length) : "";
  return { page: decodeURIComponent(inside) || HOME, query: new URLSearchParams(location.search) };
}

function announce() {
  current = read();
  for (const listener of listeners) listener(current);
}

/** The link to a page, relative to the console; parameters that are null, false or empty are left out. */
export function link(page, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return (page === HOME ? "./" : page) + (text && `?${text}`);
}

/** Goes to a link; `replace` leaves no entry in the history. */
export function navigate(href, { replace = false } = {}) {
  const url = new URL(href, base);
  if (url.href === location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  announce();
}

/** The link to this page with some of its parameters changed. */
export function changed(changes) {
  return link(current.page, { ...Object.fromEntries(current.query), ...changes });
}

/** Changes parameters of this page's URL. */
export function setQuery(changes, options) {
  navigate(changed(changes), options);
}

/** The route of now, `{page, query}`. */
export const currentRoute = () => current;

/** The same; draws again when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    listeners.add(setRoute);
    setRoute(current);
    return () => listeners.delete(setRoute);
  }, []);
  return route;
}

/** Follows links inside the console without loading a page. */
export function followLinks() {
  addEventListener("popstate", announce);
  document.addEventListener("click", (event) => {
    // A click that opens a tab or saves the link is the browser's.
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!anchor || anchor.target || anchor.hasAttribute("download") || anchor.getAttribute("href").startsWith("#"))
      return;
    const url = new URL(anchor.href);
    if (url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return;
    // Files are the server's to answer, and no pages.
    if (url.pathname.startsWith(`${base.pathname}static/`)) return;
    event.preventDefault();
    navigate(url.href);
  });
}
