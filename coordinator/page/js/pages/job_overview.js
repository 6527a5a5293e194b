// Figures, curves, goodput, attempts, incidents and checkpoints of a job.
import { html } from "../html.js";
import { getJson, useLoaded } from "../api.js";
import { live } from "../live.js";
import { compact, count, duration, figure, isNumber, percent } from "../format.js";
import { clean, cleanLine } from "../text.js";
import { Waterfall } from "../components/bars.js";
import { LoadError, Meter, Panel, Stat, Text, Time } from "../components/parts.js";
import { IncidentList } from "./incidents.js";
import { Curves } from "./job_curves.js";

const EVERY_MS = 5000;
const FAULTS_SHOWN = 8;

/** @param {{job: any}} props */
function Figures({ job }) {
  const rank = job.ranks[0];
  const steps = job.spec.steps ?? 0;
  const step = rank?.step ?? live.jobs.get(job.id)?.step ?? -1;
  const left = steps > 0 && step >= 0 && rank?.step_seconds > 0 ? (steps - step) * rank.step_seconds : null;
  return html`<dl class="stats">
    <${Stat} label="Step" value=${step >= 0 ? count(step) : "–"} sub=${steps > 0 && step >= 0 ? html`<${Meter} share=${step / steps} label="progress" />of ${count(steps)}` : ""} />
    <${Stat} label="Loss" value=${figure(rank?.loss)} />
    <${Stat} label="Step time" value=${rank?.step_seconds > 0 ? duration(rank.step_seconds) : "–"} sub=${left !== null && left > 0 ? `${duration(left)} left` : ""} />
    <${Stat} label="Tokens per second" value=${job.tokens_per_second > 0 ? compact(job.tokens_per_second) : "–"} />
    <${Stat} label="MFU" value=${rank?.mfu > 0 ? percent(rank.mfu) : "–"} />
    <${Stat} label="Goodput" value=${percent(job.goodput.ettr)} sub=${job.goodput.wall_seconds > 0 ? `of ${duration(job.goodput.wall_seconds)}` : ""} />
    <${Stat} label="Newest checkpoint" value=${rank?.checkpoint_step > 0 ? count(rank.checkpoint_step) : "–"} sub=${rank ? `${count(rank.checkpoints_saved)} saved in this attempt` : ""} />
    <${Stat} label="Attempt" value=${count(job.attempt)} sub=${job.faults.length > 0 ? `${job.faults.length} ${job.faults.length === 1 ? "fault" : "faults"}` : "no fault"} />
  </dl>`;
}

/** @param {{job: any}} props */
function Checkpoints({ job }) {
  const rank = job.ranks[0];
  if (!rank) return html`<p class="empty">No rank runs.</p>`;
  const behind = rank.checkpoint_step > 0 ? rank.step - rank.checkpoint_step : null;
  return html`<dl class="facts">
    <dt>Newest complete</dt><dd>${rank.checkpoint_step > 0 ? `${count(rank.checkpoint_step)} steps${behind !== null && behind > 0 ? `, ${count(behind)} steps ago` : ""}` : "none"}</dd>
    <dt>Saved</dt><dd>${count(rank.checkpoints_saved)} in this attempt</dd>
    <dt>Failed</dt><dd>${rank.checkpoints_failed > 0 ? html`<b>${count(rank.checkpoints_failed)}</b>` : "0"}</dd>
    <dt>Stall</dt><dd>training waited ${duration(rank.checkpoint_stall_seconds)} in this attempt</dd>
    <dt>Folder</dt><dd><${Text}>${job.spec.output_directory ?? "–"}<//></dd>
  </dl>`;
}

/** @param {any} job @returns {{name: string, planned: number, measured: number | null}[]} */
export function planRows(job) {
  const spec = job.spec;
  const rank = job.ranks[0];
  /** @type {{name: string, planned: number, measured: number | null}[]} */
  const rows = [];
  const add = (/** @type {string} */ name, /** @type {number | undefined} */ us, /** @type {number | null} */ measured) => {
    if (us && us > 0) rows.push({ name, planned: us / 1e6, measured });
  };
  add("step", spec.planned_step_us, rank?.step_seconds > 0 ? rank.step_seconds : null);
  add("of it, waiting for communication", spec.planned_communication_us, null);
  add("of it, waiting for data", spec.planned_data_us, null);
  const saves = rank && rank.step > 0 && isNumber(rank.checkpoint_stall_seconds) && rank.checkpoints_saved > 0;
  add("checkpoint stall per step", spec.planned_checkpoint_us, saves && job.attempt_first_step >= 0 ? rank.checkpoint_stall_seconds / Math.max(1, rank.step - job.attempt_first_step) : null);
  return rows;
}

/** @param {{job: any}} props */
function Plan({ job }) {
  const rows = planRows(job);
  if (rows.length === 0) return html`<p class="empty">This job was not planned. <code>muster plan</code> predicts the time of a step before a job is queued.</p>`;
  return html`<div class="scroll-x"><table class="plain">
    <thead><tr><th>Time</th><th class="number">Predicted</th><th class="number">Measured</th><th class="number">Difference</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="number">${duration(row.planned)}</td><td class="number">${duration(row.measured)}</td>
      <td class="number">${row.measured === null ? "–" : `${row.measured >= row.planned ? "+" : "−"}${percent(Math.abs(row.measured / row.planned - 1))}`}</td></tr>`)}</tbody>
  </table></div>
  ${job.spec.planned_memory_bytes > 0 && html`<p class="muted">Predicted device memory of the largest rank: ${(job.spec.planned_memory_bytes / 2 ** 30).toFixed(1)} GiB</p>`}`;
}

/** @param {{attempts: any[], more: boolean}} props */
function Attempts({ attempts, more }) {
  if (attempts.length === 0) return html`<p class="empty">No attempt has started.</p>`;
  return html`<div class="table-scroll short" tabindex="0" role="region" aria-label="Attempts table"><table class="plain padded">
    <thead><tr><th class="number">Attempt</th><th>Started</th><th class="number">Lasted</th><th class="number">Ranks</th><th class="number">Steps</th>
      <th class="number">Lost</th><th>End</th></tr></thead>
    <tbody>${attempts.map((one) => html`<tr key=${one.attempt}>
      <td class="number">${one.attempt}</td>
      <td class="nowrap"><${Time} unixNs=${one.started_unix_ns} /></td>
      <td class="number">${one.ended_unix_ns ? duration((one.ended_unix_ns - one.started_unix_ns) / 1e9) : "runs"}</td>
      <td class="number">${count(one.ranks)}</td>
      <td class="number">${one.last_step >= 0 ? `${one.first_step >= 0 ? count(one.first_step) : "?"}–${count(one.last_step)}` : "–"}</td>
      <td class="number">${one.steps_lost > 0 ? count(one.steps_lost) : "–"}</td>
      <td><${Text}>${one.end}<//>${one.incident_id > 0 && html` <a href=${`#/incidents/${one.incident_id}`}>incident ${one.incident_id}</a>`}</td>
    </tr>`)}</tbody>
  </table>${more && html`<p class="muted">There are earlier attempts: <code>muster history</code></p>`}</div>`;
}

/** @param {{job: any}} props */
function Faults({ job }) {
  return html`<ul class="incidents">${[...job.faults].reverse().slice(0, FAULTS_SHOWN).map((fault, i) => html`<li key=${i}>
    <p><span class="muted"><${Time} unixNs=${fault.unix_ns} /> · ${clean(fault.kind)} ·</span> <${Text}>${fault.message}<//></p>
  </li>`)}</ul>`;
}

/** @param {{job: any}} props */
export function JobOverview({ job }) {
  const history = useLoaded(`history ${job.id} ${job.attempt}`, (signal) => getJson(`jobs/${job.id}/history?limit=100`, signal), EVERY_MS);
  const incidents = useLoaded(`incidents ${job.id} ${job.incident?.id}`, (signal) => getJson(`incidents?job=${job.id}&limit=100`, signal), EVERY_MS);
  const attempts = history.value?.attempts ?? [];
  const found = incidents.value?.incidents ?? [];
  const current = attempts.find((/** @type {any} */ one) => one.attempt === job.attempt);
  const withStart = { ...job, attempt_first_step: current?.first_step ?? -1 };
  return html`
    <${Figures} job=${job} />
    <${Curves} job=${job} attempts=${attempts} incidents=${found} />
    <div class="columns">
      <div class="wide-7"><${Panel} title="Goodput"><div class="body"><${Waterfall} goodput=${job.goodput} /></div><//></div>
      <div class="wide-5"><${Panel} title="Incidents"><${LoadError} error=${incidents.error} what="Incidents" /><div class="scroll-y short">
        <${IncidentList} incidents=${found} withJob=${false} /></div><//></div>
    </div>
    <${Panel} title="Attempts"><${LoadError} error=${history.error} what="Attempts" /><${Attempts} attempts=${attempts} more=${history.value?.more ?? false} /><//>
    <div class="columns">
      <div class="wide-6"><${Panel} title="Checkpoints"><div class="body"><${Checkpoints} job=${job} /></div><//></div>
      <div class="wide-6"><${Panel} title="Predicted and measured"><div class="body"><${Plan} job=${withStart} /></div><//></div>
    </div>
    ${job.faults.length > 0 && html`<${Panel} title="Faults"><${Faults} job=${job} /><//>`}
    ${job.held.length > 0 && html`<p class="muted">Reserved nodes: ${job.held.map(cleanLine).join(", ")}</p>`}
  `;
}
