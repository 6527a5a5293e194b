// The table of jobs with filter, search and sorting, all of which are part of the address.
import { html, useMemo } from "../html.js";
import { count, duration, figure, compact, percent } from "../format.js";
import { changeQuery } from "../router.js";
import { cleanLine, matchesWords, shorten, wordsOf } from "../text.js";
import { DataTable } from "../components/table.js";
import { JOB_STATE_ORDER, JobState, jobStateName } from "../components/badge.js";
import { JobLink, Age, Meter, Panel } from "../components/parts.js";

const TIP_CHARACTERS = 500;

/** @param {any} job */
function progress(job) {
  if (job.step < 0) return null;
  return job.steps > 0 ? job.step / job.steps : null;
}

/** @param {any} job */
function stepCell(job) {
  if (job.step < 0) return html`<span class="muted">–</span>`;
  const share = progress(job);
  return html`<span class="steps"><span>${count(job.step)}${job.steps > 0 && html`<span class="muted"> / ${count(job.steps)}</span>`}</span>
    ${share !== null && html`<${Meter} share=${share} label="progress" />`}</span>`;
}

/** @type {import("../components/table.js").Column[]} */
export const JOB_COLUMNS = [
  { key: "id", title: "Job", number: true, width: 58, rank: 0, value: (job) => job.id, cell: (job) => html`<span class="muted">${job.id}</span>` },
  { key: "name", title: "Name", width: 180, grow: 2, rank: 0, value: (job) => cleanLine(job.name),
    cell: (job) => html`<${JobLink} id=${job.id} name=${job.name} />` },
  { key: "state", title: "State", width: 124, rank: 0, value: (job) => JOB_STATE_ORDER.indexOf(job.state),
    cell: (job) => html`<${JobState} state=${job.state} />` },
  { key: "user", title: "User", width: 84, rank: 6, value: (job) => cleanLine(job.user), cell: (job) => html`<bdi>${cleanLine(job.user)}</bdi>` },
  { key: "nodes", title: "Nodes", number: true, width: 66, rank: 6, value: (job) => job.nodes },
  { key: "ranks", title: "Ranks", number: true, width: 74, rank: 4, value: (job) => job.ranks, cell: (job) => count(job.ranks) },
  { key: "step", title: "Step", number: true, width: 176, rank: 1, value: (job) => (job.step < 0 ? null : job.step), cell: stepCell },
  { key: "loss", title: "Loss", number: true, width: 72, rank: 3, value: (job) => job.loss, cell: (job) => figure(job.loss) },
  { key: "step_seconds", title: "Step time", number: true, width: 88, rank: 5, value: (job) => job.step_seconds || null,
    cell: (job) => (job.step_seconds ? duration(job.step_seconds) : "–") },
  { key: "tokens", title: "Tokens/s", number: true, width: 84, rank: 4, value: (job) => job.tokens_per_second || null,
    cell: (job) => (job.tokens_per_second ? compact(job.tokens_per_second) : "–") },
  { key: "mfu", title: "MFU", number: true, width: 68, rank: 5, value: (job) => job.mfu || null, cell: (job) => (job.mfu ? percent(job.mfu) : "–") },
  { key: "ettr", title: "Goodput", number: true, width: 82, rank: 2, value: (job) => job.ettr, cell: (job) => percent(job.ettr) },
  { key: "age", title: "Age", number: true, width: 84, rank: 5, value: (job) => job.submitted_unix_ns,
    cell: (job) => html`<${Age} unixNs=${job.submitted_unix_ns} short=${true} />` },
  { key: "reason", title: "Reason", width: 220, grow: 3, rank: 3, value: (job) => cleanLine(job.reason), tip: (job) => shorten(job.reason, TIP_CHARACTERS),
    cell: (job) => html`<bdi class="muted">${cleanLine(job.reason)}</bdi>` },
];

// All are queued, and none has trained yet.
const NOT_OF_QUEUED = ["state", "step", "loss", "step_seconds", "tokens", "mfu", "ettr"];

/**
 * Returns the number of each queued job in the order in which they are placed: higher priority first,
 * then earlier submission.
 * @param {any[]} jobs @returns {Map<number, number>}
 */
export function queueOrder(jobs) {
  const queued = jobs.filter((job) => job.state === "QUEUED").sort((a, b) => b.priority - a.priority || a.id - b.id);
  return new Map(queued.map((job, index) => [job.id, index + 1]));
}

/** @param {any[]} jobs @returns {import("../components/table.js").Column[]} */
function queueColumns(jobs) {
  const order = queueOrder(jobs);
  const [id, name, ...others] = JOB_COLUMNS.filter((column) => !NOT_OF_QUEUED.includes(column.key));
  return [
    { key: "order", title: "Order", width: 70, rank: 0, value: (job) => order.get(job.id) ?? null },
    id,
    name,
    { key: "priority", title: "Priority", number: true, width: 80, rank: 2, value: (job) => job.priority },
    ...others,
  ];
}

/** @param {{counts: Map<string, number>, total: number, chosen: string}} props */
function StateChips({ counts, total, chosen }) {
  const chip = (/** @type {string} */ state, /** @type {string} */ name, /** @type {number} */ number) => html`<button type="button" class="chip" key=${state || "all"}
      aria-pressed=${chosen === state ? "true" : "false"} onClick=${() => changeQuery({ state })}>${name} <span class="count">${count(number)}</span></button>`;
  return html`<div class="chips" role="group" aria-label="Filter by state">
    ${chip("", "all", total)}
    ${JOB_STATE_ORDER.filter((state) => counts.get(state) || state === chosen).map((state) => chip(state, jobStateName(state), counts.get(state) ?? 0))}
  </div>`;
}

/** @param {{rows: any[], more: boolean, query: URLSearchParams}} props */
export function JobsPanel({ rows, more, query }) {
  const state = query.get("state") ?? "";
  const search = query.get("q") ?? "";
  const isQueue = state === "QUEUED";
  const sort = query.get("sort") ?? (isQueue ? "order" : "-id");
  const counts = useMemo(() => {
    const found = new Map();
    for (const job of rows) found.set(job.state, (found.get(job.state) ?? 0) + 1);
    return found;
  }, [rows]);
  const shown = useMemo(() => {
    const words = wordsOf(search);
    return rows.filter((job) => (!state || job.state === state) && (words.length === 0 || matchesWords(`${job.id} ${job.name} ${job.user} ${job.reason}`.toLowerCase(), words)));
  }, [rows, state, search]);
  const columns = useMemo(() => (isQueue ? queueColumns(rows) : JOB_COLUMNS), [isQueue, isQueue && rows]);
  return html`<${Panel} title="Jobs" class="jobs" aside=${html`
      <${StateChips} counts=${counts} total=${rows.length} chosen=${state} />
      <input type="search" aria-label="Search jobs by number, name, user or reason" placeholder="Search name, user, reason" value=${search}
        onInput=${(/** @type {any} */ event) => changeQuery({ q: event.target.value })} />`}>
    <${DataTable} label="Jobs" columns=${columns} rows=${shown} keyOf=${(/** @type {any} */ job) => job.id} sort=${sort}
      onSort=${(/** @type {string} */ next) => changeQuery({ sort: next })} empty=${rows.length === 0 ? "No job has been submitted." : undefined} />
    ${more && html`<p class="empty">Older jobs that have ended are not listed here; <code>muster list</code> shows all.</p>`}
  <//>`;
}
