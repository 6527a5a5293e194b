// The frame of the page: navigation, theme, login, and the page of the current address.
import { html, render, useEffect, useState } from "./html.js";
import { loadSession, logout, useSession } from "./api.js";
import { unwatch, useLive, watch } from "./live.js";
import { useRoute } from "./router.js";
import { chooseTheme, chosenTheme } from "./theme.js";
import { Login } from "./pages/login.js";
import { FleetPage } from "./pages/fleet.js";
import { NodesPage } from "./pages/nodes.js";
import { IncidentsPage } from "./pages/incidents.js";
import { IncidentPage } from "./pages/incident.js";
import { JobPage } from "./pages/job.js";
import { SubmitPage } from "./pages/submit.js";

const RETRY_MS = 2000;

/** @typedef {import("./router.js").Route} Route */

/** @type {{name: string, href: string, first: string[]}[]} */
const LINKS = [
  { name: "Fleet", href: "#/", first: ["", "jobs"] },
  { name: "Nodes", href: "#/nodes", first: ["nodes"] },
  { name: "Incidents", href: "#/incidents", first: ["incidents"] },
  { name: "Submit", href: "#/submit", first: ["submit"] },
];

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme);
  return html`<select aria-label="Theme" value=${theme} onChange=${(/** @type {any} */ event) => {
    chooseTheme(event.target.value);
    setTheme(event.target.value);
  }}>
    <option value="system">System theme</option><option value="light">Light</option><option value="dark">Dark</option>
  </select>`;
}

function ConnectionState() {
  const { connection } = useLive();
  const away = connection !== "live";
  return html`<span class=${`live${away ? " away" : ""}`} role="status"><i></i>${away ? (connection === "away" ? "reconnecting…" : "connecting…") : "live"}</span>`;
}

/** @param {{route: Route, session: any}} props */
function TopBar({ route, session }) {
  const { fleet } = useLive();
  const open = fleet?.open_incidents ?? 0;
  return html`<header class="top">
    <a class="brand" href="#/"><svg viewBox="0 0 16 16" width="18" height="18" aria-hidden="true">
      <rect width="16" height="16" rx="3" class="mark-ground" /><path class="mark" d="M3 3h4v4H3zm6 0h4v4H9zM3 9h4v4H3zm6 0h4v4H9z" /></svg>Muster</a>
    ${session.role && html`<nav aria-label="Pages">${LINKS.map((link) => html`<a key=${link.name} href=${link.href}
        aria-current=${link.first.includes(route.path[0] ?? "") ? "page" : undefined}>${link.name}${link.name === "Incidents" && open > 0 && html`<span class="badge warn">${open} open</span>`}</a>`)}
    </nav>`}
    <div class="right">
      ${session.role && html`<${ConnectionState} />`}
      <${ThemeSwitch} />
      ${session.login_required && session.role && html`<button type="button" class="button" title=${`Your role is ${session.role}`} onClick=${() => {
        unwatch();
        logout().catch(() => {});
      }}>Log out <span class="muted">${session.role}</span></button>`}
    </div>
  </header>`;
}

/** @param {Route} route @returns {[any, Record<string, unknown>, string]} */
function pageOf({ path, query }) {
  const [first, second, third] = path;
  const id = /^\d{1,15}$/.test(second ?? "") ? Number(second) : 0;
  if (!first) return [FleetPage, { query }, "Fleet"];
  if (first === "nodes") return [NodesPage, { query, name: second ?? "" }, "Nodes"];
  if (first === "incidents" && id > 0) return [IncidentPage, { key: id, id }, `Incident ${id}`];
  if (first === "incidents") return [IncidentsPage, { query }, "Incidents"];
  if (first === "jobs" && id > 0) return [JobPage, { key: id, id, view: third ?? "overview", query }, `Job ${id}`];
  if (first === "submit") return [SubmitPage, { query }, "Submit"];
  return [NotFound, {}, "No such page"];
}

function NotFound() {
  return html`<h1>No such page</h1><p><a href="#/">Go to the fleet</a></p>`;
}

function App() {
  const session = useSession();
  const route = useRoute();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (session) return undefined;
    let timer = 0;
    const load = () => loadSession().catch((error) => {
      setProblem(error.message);
      timer = window.setTimeout(load, RETRY_MS);
    });
    load();
    return () => clearTimeout(timer);
  }, [session === null]);

  const [Page, props, title] = pageOf(route);
  const watched = route.path[0] === "jobs" && "id" in props ? Number(props.id) : 0;
  useEffect(() => {
    if (session?.role) watch(watched);
  }, [session?.role, session?.csrf === undefined, watched]);
  useEffect(() => {
    document.title = `${title} · Muster`;
  }, [title]);

  if (!session) return html`<main><p class="boot" role="status">${problem ? `${problem} Trying again…` : "Connecting…"}</p></main>`;
  return html`
    <a class="skip" href="#content" onClick=${(/** @type {Event} */ event) => {
      event.preventDefault();
      document.getElementById("content")?.focus();
    }}>Skip to the content</a>
    <${TopBar} route=${route} session=${session} />
    <main id="content" tabindex="-1">${session.role ? html`<${Page} ...${props} />` : html`<${Login} />`}</main>
  `;
}

const root = /** @type {HTMLElement} */ (document.getElementById("root"));
root.replaceChildren();
render(html`<${App} />`, root);
