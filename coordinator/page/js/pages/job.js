// One job: its state and actions above, and one of its views below.
import { html, useState } from "../html.js";
import { getJson, hasRole, ownsJob, postJson, useLoaded } from "../api.js";
import { useLive } from "../live.js";
import { count } from "../format.js";
import { cleanLine, shorten } from "../text.js";
import { JobState } from "../components/badge.js";
import { useConfirm } from "../components/dialog.js";
import { Icicle } from "../components/icicle.js";
import { Age, LoadError, Panel, Text } from "../components/parts.js";
import { JobOverview } from "./job_overview.js";
import { JobConfig } from "./job_config.js";
import { MeshPanel } from "./mesh.js";
import { LogsPanel } from "./logs.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];
const TITLE_CHARACTERS = 120;

const VIEWS = /** @type {[string, string][]} */ ([["overview", "Overview"], ["mesh", "Mesh"], ["logs", "Logs"], ["config", "Config"]]);

/** @param {{job: any, onStacks: (dump: any) => void}} props */
function Actions({ job, onStacks }) {
  const { confirm, elements } = useConfirm();
  const ended = ENDED.includes(job.state);
  const owns = ownsJob(job.spec);
  const mayAct = hasRole("submitter") && owns;
  const why = !owns ? `The job belongs to ${shorten(job.spec.owner, 60)}` : !mayAct ? "This needs the role submitter" : ended ? "The job has ended" : undefined;
  const name = shorten(job.spec.name, 60);
  const running = job.state === "RUNNING" || job.state === "SUSPECT";
  const button = (/** @type {string} */ text, /** @type {boolean} */ enabled, /** @type {import("../components/dialog.js").Request} */ request, danger = false) => html`<button type="button"
      class=${`button${danger ? " danger" : ""}`} disabled=${!mayAct || !enabled} title=${why ?? (enabled ? undefined : "The job does not run")} onClick=${() => confirm(request)}>${text}</button>`;
  return html`<div class="row actions">
    ${button("Checkpoint now…", running, {
      title: "Save a checkpoint",
      text: `Rank 0 of job ${job.id} (${name}) saves a checkpoint after its current step. Training continues.`,
      action: "Save",
      run: async () => {
        const answer = await postJson(`jobs/${job.id}/checkpoint`, {});
        return `A checkpoint with more than ${count(answer.after_step)} steps is requested.`;
      },
    })}
    ${button("Read stacks…", running || job.state === "STARTING", {
      title: "Read the stacks of all ranks",
      text: "Each rank stands still for some milliseconds while its stack is read. The job continues. This takes seconds.",
      action: "Read",
      run: async () => {
        onStacks(await postJson(`jobs/${job.id}/stacks`, { rank: -1 }));
        return "The stacks are below.";
      },
    })}
    ${button("Cancel…", !ended, {
      title: `Cancel job ${job.id}`,
      text: html`<${Text}>${name}<//> saves a checkpoint if it can, and ends. It does not start again.`,
      action: "Cancel the job",
      danger: true,
      fields: html`<label class="row"><input type="checkbox" name="force" /> Kill the ranks at once, without a checkpoint</label>`,
      run: async (values) => {
        await postJson(`jobs/${job.id}/cancel`, { force: values.force === "on" });
        return `Job ${job.id} is being cancelled.`;
      },
    }, true)}
    ${elements}
  </div>`;
}

/** @param {{dump: any, onClose: () => void}} props */
function StackPanel({ dump, onClose }) {
  return html`<${Panel} title=${`Stacks of attempt ${dump.attempt}`} aside=${html`<button type="button" class="button small" onClick=${onClose}>Close</button>`}>
    <div class="body">
      ${dump.silent_workers.length > 0 && html`<p class="notice warn">These nodes did not answer in time: ${dump.silent_workers.map(cleanLine).join(", ")}</p>`}
      <${Icicle} classes=${dump.classes} dropped=${dump.dropped} />
    </div>
  <//>`;
}

/** @param {{job: any}} props */
function Head({ job }) {
  const spec = job.spec;
  return html`<p class="crumbs"><a href="#/">Fleet</a><span>›</span><span>job ${job.id}</span></p>
    <div class="row title"><h1 title=${shorten(spec.name, 1000)}><bdi>${shorten(spec.name, TITLE_CHARACTERS)}</bdi></h1><${JobState} state=${job.state} /></div>
    <p class="reason"><${Text}>${job.reason}<//></p>
    <p class="muted">job ${job.id} of <bdi>${shorten(spec.user, 60)}</bdi>, attempt ${job.attempt}, ${count(job.nodes || spec.nodes)} nodes × ${count(spec.ranks_per_node)} ranks,
      submitted <${Age} unixNs=${job.submitted_unix_ns} />${job.finished_unix_ns > 0 && html`, ended <${Age} unixNs=${job.finished_unix_ns} /> with exit code ${job.exit_code}`}</p>`;
}

/** @param {{id: number, view: string, query: URLSearchParams}} props */
export function JobPage({ id, view, query }) {
  const live = useLive();
  const loaded = useLoaded(`job ${id}`, (signal) => getJson(`jobs/${id}?ranks=1`, signal));
  const [dump, setDump] = useState(/** @type {any} */ (null));
  // Events have no train config: it does not change.
  const job = live.job?.id === id ? { ...live.job, spec: { ...loaded.value?.spec, ...live.job.spec } } : loaded.value;
  if (live.gone || loaded.error?.status === 404) return html`<h1>Job ${id}</h1>
    <p class="notice warn">There is no job ${id}: it has never existed, or it ended long ago. <a href="#/">Go to the fleet</a></p>`;
  if (!job) return html`<h1>Job ${id}</h1><${LoadError} error=${loaded.error} what="Job" />${!loaded.error && html`<p class="muted">Loading…</p>`}`;
  return html`
    <div class="head job-head"><div><${Head} job=${job} /></div><${Actions} job=${job} onStacks=${setDump} /></div>
    ${dump && html`<${StackPanel} dump=${dump} onClose=${() => setDump(null)} />`}
    <nav class="tabs" aria-label="Views of the job">
      ${VIEWS.map(([key, title]) => html`<a key=${key} href=${`#/jobs/${id}${key === "overview" ? "" : `/${key}`}`} aria-current=${view === key ? "page" : undefined}>${title}</a>`)}</nav>
    ${view === "mesh" ? html`<${MeshPanel} job=${job} query=${query} />`
    : view === "logs" ? html`<${LogsPanel} job=${job} query=${query} />`
    : view === "config" ? html`<${JobConfig} job=${job} full=${loaded.value} error=${loaded.error} query=${query} />`
    : html`<${JobOverview} job=${job} />`}
  `;
}
