// The fleet at a glance: figures, goodput over time, open incidents and all jobs.
import { html, useMemo } from "../html.js";
import { getJson, useLoaded } from "../api.js";
import { useLive } from "../live.js";
import { compact, count, duration, percent } from "../format.js";
import { LoadError, Panel, Stat } from "../components/parts.js";
import { JobsPanel } from "./fleet_jobs.js";
import { GoodputPanel } from "./fleet_goodput.js";
import { IncidentList } from "./incidents.js";

const INCIDENTS_EVERY_MS = 5000;
const INCIDENTS_SHOWN = 6;
const ACTIVE = ["QUEUED", "STARTING", "RUNNING", "SUSPECT", "DUMPING", "RESTARTING"];

/** @param {{fleet: any}} props */
function Figures({ fleet }) {
  const active = ACTIVE.reduce((sum, state) => sum + (fleet.jobs[state] ?? 0), 0);
  const trouble = (fleet.jobs.SUSPECT ?? 0) + (fleet.jobs.DUMPING ?? 0) + (fleet.jobs.RESTARTING ?? 0);
  const away = fleet.nodes.total - fleet.nodes.connected;
  const hasGpus = fleet.gpus.total > 0;
  const room = hasGpus ? fleet.gpus : fleet.slots;
  const nodeNotes = [away > 0 && `${count(away)} away`, fleet.nodes.excluded > 0 && `${count(fleet.nodes.excluded)} excluded`,
    fleet.nodes.checking > 0 && `${count(fleet.nodes.checking)} in a check`, fleet.nodes.leaving > 0 && `${count(fleet.nodes.leaving)} leaving`].filter(Boolean);
  return html`<dl class="stats">
    <${Stat} label="Running" value=${count(fleet.jobs.RUNNING)} sub=${`of ${count(active)} active jobs`} />
    <${Stat} label="Queued" value=${count(fleet.jobs.QUEUED)} sub="" />
    <${Stat} label="In trouble" value=${count(trouble)} sub="suspect or restarting" />
    <${Stat} label="Open incidents" value=${count(fleet.open_incidents)} sub="" />
    <${Stat} label=${hasGpus ? "GPUs in use" : "Slots in use"} value=${count(room.used)} sub=${`of ${count(room.total)}: ${count(room.free)} free, ${count(room.excluded)} excluded`} />
    <${Stat} label="Nodes" value=${count(fleet.nodes.connected)} sub=${nodeNotes.join(", ") || `of ${count(fleet.nodes.total)} connected`} />
    <${Stat} label="Goodput" value=${percent(fleet.goodput.ettr)} sub=${fleet.goodput.wall_seconds > 0 ? `of ${duration(fleet.goodput.wall_seconds)} of jobs` : ""} />
    <${Stat} label="Tokens per second" value=${compact(fleet.tokens_per_second)} sub="all jobs" />
  </dl>`;
}

/** @param {{query: URLSearchParams}} props */
export function FleetPage({ query }) {
  const { fleet, rows, more } = useLive();
  const incidents = useLoaded("incidents", (signal) => getJson("incidents?limit=100", signal), INCIDENTS_EVERY_MS);
  const newest = useMemo(() => {
    const all = incidents.value?.incidents ?? [];
    const open = all.filter((/** @type {any} */ one) => one.open);
    return (open.length > 0 ? open : all).slice(0, INCIDENTS_SHOWN);
  }, [incidents.value]);
  const isOpen = newest.some((/** @type {any} */ one) => one.open);
  if (!fleet) return html`<h1>Fleet</h1><p class="muted" role="status">Loading the fleet…</p>`;
  return html`
    <h1 class="visually-hidden">Fleet</h1>
    <${Figures} fleet=${fleet} />
    <div class="columns stretch">
      <div class="wide-7"><${GoodputPanel} /></div>
      <div class="wide-5"><${Panel} title=${isOpen ? "Open incidents" : "Newest incidents"} aside=${html`<a href="#/incidents">All incidents</a>`}>
        <${LoadError} error=${incidents.error} what="Incidents" />
        <${IncidentList} incidents=${newest} />
        ${isOpen && fleet.open_incidents > newest.length && html`<p class="empty"><a href="#/incidents?open=1">${count(fleet.open_incidents - newest.length)} more open incidents</a></p>`}
      <//></div>
    </div>
    <${JobsPanel} rows=${rows} more=${more} query=${query} />
  `;
}
