// Addresses are fragments (#/jobs/7), so that the server only serves files and a link survives a
// login. A filter or a view is part of the address: #/?state=RUNNING&q=llama
import { useEffect, useState } from "./html.js";

/** @typedef {{path: string[], query: URLSearchParams}} Route */

/** @returns {Route} */
export function currentRoute() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean);
  return { path: parts.map(decoded), query: new URLSearchParams(query ?? "") };
}

/** @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a damaged address
  }
}

/** @returns {Route} */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    const update = () => setRoute(currentRoute());
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return route;
}

/**
 * Replaces values of the query without an entry in the history. Empty values are removed.
 * @param {Record<string, string>} changes
 */
export function changeQuery(changes) {
  const { path, query } = currentRoute();
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const text = query.toString();
  const hash = `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/**
 * Returns changeQuery() for the present page. It does nothing once another page is open: a later
 * change would apply to that page.
 * @returns {typeof changeQuery}
 */
export function queryOfThisPage() {
  const page = currentRoute().path.join("/");
  return (changes) => {
    if (currentRoute().path.join("/") === page) changeQuery(changes);
  };
}

/** @param {string} hash */
export function visit(hash) {
  location.hash = hash;
}
