/** The state of the page in the URL `<base><page>?<query>`. Works below any prefix. */
import { useEffect, useState } from "./vendor/htm-preact.js";

/** The URL of the console, `…/-/console/`. This file is `<base>static/router.js`. */
export const base = new URL("../", import.meta.url);

export const HOME = "overview";

const listeners = new Set();

/** Whether the link that opened the page had an invalid token. */
export const hadInvalidToken = forgetToken();
let current = read();

/** Remove an invalid token from the URL: it can be a key, and the browser's history would keep it. */
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

/** Return the link to a page, relative to the console. Null, false and empty parameters are omitted. */
export function link(page, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return (page === HOME ? "./" : page) + (text && `?${text}`);
}

/** Navigate to a link. `replace` adds no history entry. */
export function navigate(href, { replace = false } = {}) {
  const url = new URL(href, base);
  if (url.href === location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  announce();
}

/** Return the link to this page with changed parameters. */
export function changed(changes) {
  return link(current.page, { ...Object.fromEntries(current.query), ...changes });
}

/** Change parameters of the URL. */
export function setQuery(changes, options) {
  navigate(changed(changes), options);
}

/** Return the current route, `{page, query}`. */
export const currentRoute = () => current;

/** Return the current route, and render again when it changes. */
export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    listeners.add(setRoute);
    setRoute(current);
    return () => listeners.delete(setRoute);
  }, []);
  return route;
}

/** Follow links of the console without loading a page. */
export function followLinks() {
  addEventListener("popstate", announce);
  document.addEventListener("click", (event) => {
    // The browser handles clicks that open a tab or download the link.
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    const anchor = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!anchor || anchor.target || anchor.hasAttribute("download") || anchor.getAttribute("href").startsWith("#"))
      return;
    const url = new URL(anchor.href);
    if (url.origin !== base.origin || !url.pathname.startsWith(base.pathname)) return;
    // Links to files are not pages.
    if (url.pathname.startsWith(`${base.pathname}static/`)) return;
    event.preventDefault();
    navigate(url.href);
  });
}
