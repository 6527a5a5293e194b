// All incidents, newest first.
import { html, useMemo } from "../html.js";
import { getJson, useLoaded } from "../api.js";
import { duration } from "../format.js";
import { changeQuery } from "../router.js";
import { cleanLine, matchesWords, shorten, wordsOf } from "../text.js";
import { Badge } from "../components/badge.js";
import { DataTable } from "../components/table.js";
import { Age, JobLink, LoadError, Panel, Text } from "../components/parts.js";

const EVERY_MS = 10000;
const LIMIT = 500;
const TIP_CHARACTERS = 500;

/** Returns when the incident was opened. @param {any} incident */
export function openedAt(incident) {
  return incident.moments[0]?.unix_ns ?? 0;
}

/** Returns the seconds from the last progress to the next step; null: not reached. @param {any} incident */
export function secondsToRecover(incident) {
  const recovery = incident.recovery;
  if (!recovery?.first_step_unix_ns) return null;
  const from = recovery.last_progress_unix_ns ?? recovery.detected_unix_ns;
  return from ? (recovery.first_step_unix_ns - from) / 1e9 : null;
}

/** @param {{incident: any}} props */
export function IncidentKind({ incident }) {
  return html`<${Badge} tone=${incident.open ? "warn" : "quiet"}>${cleanLine(incident.kind)}${incident.open ? " · open" : ""}<//>`;
}

/** @param {{incidents: any[], withJob?: boolean}} props */
export function IncidentList({ incidents, withJob = true }) {
  if (incidents.length === 0) return html`<p class="empty">No incident.</p>`;
  return html`<ul class="incidents">${incidents.map((incident) => html`<li key=${incident.id}>
    <div class="row"><${IncidentKind} incident=${incident} /><span class="muted"><${Age} unixNs=${openedAt(incident)} />
      ${withJob && html` · <${JobLink} id=${incident.job} name=${incident.job_name} />`}</span></div>
    <p><a class="sentence" href=${`#/incidents/${incident.id}`}><${Text}>${incident.sentence}<//></a></p>
  </li>`)}</ul>`;
}

/** @type {import("../components/table.js").Column[]} */
const COLUMNS = [
  { key: "id", title: "Incident", number: true, width: 84, rank: 2, value: (one) => one.id, cell: (one) => html`<span class="muted">${one.id}</span>` },
  { key: "kind", title: "Kind", width: 178, rank: 0, value: (one) => cleanLine(one.kind), cell: (one) => html`<${IncidentKind} incident=${one} />` },
  { key: "what", title: "What happened", width: 180, grow: 4, rank: 0, value: (one) => cleanLine(one.sentence), tip: (one) => shorten(one.sentence, TIP_CHARACTERS),
    cell: (one) => html`<a href=${`#/incidents/${one.id}`}><bdi>${cleanLine(one.sentence)}</bdi></a>` },
  { key: "job", title: "Job", width: 130, grow: 1, rank: 1, value: (one) => one.job, cell: (one) => html`<${JobLink} id=${one.job} name=${one.job_name} />` },
  { key: "attempt", title: "Attempt", number: true, width: 76, rank: 4, value: (one) => one.attempt },
  { key: "opened", title: "Age", number: true, width: 84, rank: 1, value: openedAt, cell: (one) => html`<${Age} unixNs=${openedAt(one)} short=${true} />` },
  { key: "back", title: "Back after", number: true, width: 96, rank: 3, value: secondsToRecover, cell: (one) => duration(secondsToRecover(one)) },
  { key: "lost", title: "Steps lost", number: true, width: 92, rank: 4, value: (one) => one.recovery?.steps_lost, cell: (one) => one.recovery?.steps_lost ?? "–" },
];

/** @param {{query: URLSearchParams}} props */
export function IncidentsPage({ query }) {
  const loaded = useLoaded("incidents", (signal) => getJson(`incidents?limit=${LIMIT}`, signal), EVERY_MS);
  const search = query.get("q") ?? "";
  const onlyOpen = query.get("open") === "1";
  const all = loaded.value?.incidents ?? [];
  const rows = useMemo(() => {
    const words = wordsOf(search);
    return all.filter((/** @type {any} */ one) => (!onlyOpen || one.open) && matchesWords(`${one.id} ${one.kind} ${one.job_name} ${one.sentence}`.toLowerCase(), words));
  }, [loaded.value, search, onlyOpen]);
  return html`<h1>Incidents</h1>
    <${LoadError} error=${loaded.error} what="Incidents" />
    <${Panel} title=${`${rows.length} incidents`} aside=${html`
      <button type="button" class="chip" aria-pressed=${onlyOpen ? "true" : "false"} onClick=${() => changeQuery({ open: onlyOpen ? "" : "1" })}>open only</button>
      <input type="search" aria-label="Search incidents" placeholder="Search kind, job, sentence" value=${search} onInput=${(/** @type {any} */ event) => changeQuery({ q: event.target.value })} />`}>
      <${DataTable} label="Incidents" columns=${COLUMNS} rows=${rows} keyOf=${(/** @type {any} */ one) => one.id} sort=${query.get("sort") ?? "-id"}
        onSort=${(/** @type {string} */ sort) => changeQuery({ sort })} height="76vh" empty=${!loaded.value ? "Loading…" : all.length === 0 ? "No incident is stored." : undefined} />
    <//>`;
}
