// One incident: sentence, suspects, time line, stacks, collectives, last lines, action and cost.
import { html, useEffect, useMemo, useState } from "../html.js";
import { ApiError, getJson, useLoaded } from "../api.js";
import { count, dateTime, duration, percent } from "../format.js";
import { cleanLine, shorten } from "../text.js";
import { Icicle } from "../components/icicle.js";
import { JobLink, LoadError, Panel, Stat, Text } from "../components/parts.js";
import { Collectives } from "../components/collectives.js";
import { Timeline } from "../components/timeline.js";
import { IncidentKind, openedAt, secondsToRecover } from "./incidents.js";

const OPEN_EVERY_MS = 2000;
const LINES_SHOWN = 40;

/** @param {{suspect: any, job: number}} props */
function Suspect({ suspect, job }) {
  const where = suspect.rank >= 0 ? `rank ${suspect.rank}${suspect.worker ? ` on ${cleanLine(suspect.worker)}` : ""}` : cleanLine(suspect.worker) || "unknown";
  return html`<li class="suspect">
    <div class="who"><b><bdi>${where}</bdi></b>
      ${suspect.rank >= 0 && html`<a href=${`#/jobs/${job}/mesh?rank=${suspect.rank}`}>in the mesh</a>`}<span class="confidence"><span class="bar">
      <span style=${{ width: percent(suspect.confidence) }}></span></span>${percent(suspect.confidence, 0)}</span></div>
    <p class="why"><${Text}>${suspect.why}<//></p>
    ${suspect.source && html`<p class="code"><${Text}>${suspect.source}<//></p>`}
    ${suspect.collective && html`<p class="muted">in <${Text}>${suspect.collective}<//>${suspect.axis && html` along <${Text}>${suspect.axis}<//>`}</p>`}
  </li>`;
}

/** @param {{rank: any, isFirst: boolean}} props */
function LastLines({ rank, isFirst }) {
  const [isOpen, setOpen] = useState(isFirst);
  return html`<details open=${isOpen} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary>rank ${rank.rank}: ${cleanLine(rank.phase)} after step ${count(rank.step)}, no progress for ${duration(rank.progress_age_seconds)}${rank.stack_problem && html`, <${Text}>${rank.stack_problem}<//>`}</summary>
    ${isOpen && html`<pre class="lines" tabindex="0" aria-label=${`Last lines of rank ${rank.rank}`}>
      ${rank.last_lines.length > 0 ? rank.last_lines.slice(-LINES_SHOWN).map(cleanLine).join("\n") : "This rank has written nothing."}</pre>`}
    ${rank.files.length > 0 && html`<p class="muted">Files on the node: ${rank.files.map(cleanLine).join(", ")}</p>`}
  </details>`;
}

/** @param {any} incident */
function steps(incident) {
  const recovery = incident.recovery;
  if (!recovery) return "–";
  return recovery.steps_lost > 0 ? count(recovery.steps_lost) : "0";
}

/** @param {{incident: any}} props */
function Cost({ incident }) {
  const recovery = incident.recovery;
  const back = secondsToRecover(incident);
  const from = recovery?.last_progress_unix_ns ?? openedAt(incident);
  const detected = recovery?.detected_unix_ns ? (recovery.detected_unix_ns - from) / 1e9 : null;
  return html`<dl class="stats">
    <${Stat} label="Detected after" value=${duration(detected)} sub="from the last progress" />
    <${Stat} label="Next step after" value=${duration(back)} sub=${recovery && !recovery.over ? "recovery is not complete" : ""} />
    <${Stat} label="Caught up after" value=${recovery?.caught_up_unix_ns ? duration((recovery.caught_up_unix_ns - from) / 1e9) : "–"} sub="beyond the best step" />
    <${Stat} label="Steps repeated" value=${steps(incident)} sub=${recovery && recovery.restored_step >= 0 ? `resumed from step ${count(recovery.restored_step)}` : ""} />
    <${Stat} label="Attempts started" value=${recovery ? count(recovery.attempts) : "–"}
      sub=${recovery?.interrupted_by ? html`interrupted by <a href=${`#/incidents/${recovery.interrupted_by}`}>incident ${recovery.interrupted_by}</a>` : ""} />
  </dl>`;
}

/** @param {{id: number}} props */
export function IncidentPage({ id }) {
  const [isSettled, setSettled] = useState(false);
  const loaded = useLoaded(`incident ${id}`, (signal) => getJson(`incidents/${id}`, signal), isSettled ? 0 : OPEN_EVERY_MS);
  const incident = loaded.value;
  const isOver = incident !== null && !incident.open && (!incident.recovery || incident.recovery.over);
  useEffect(() => setSettled(isOver), [isOver]);
  const suspect = incident?.suspects[0]?.rank ?? -1;
  // The likeliest suspect first, then the others.
  const ranks = useMemo(() => {
    return [...(incident?.ranks ?? [])].sort((a, b) => Number(b.rank === suspect) - Number(a.rank === suspect) || a.rank - b.rank);
  }, [incident]);
  if (!incident) {
    if (loaded.error instanceof ApiError && loaded.error.status === 404) return html`<h1>Incident ${id}</h1>
      <p class="notice warn">There is no incident ${id}: the coordinator stores the newest ones only.</p>`;
    return html`<h1>Incident ${id}</h1><${LoadError} error=${loaded.error} what="Incident" />${!loaded.error && html`<p class="muted">Loading…</p>`}`;
  }
  return html`
    <div class="head">
      <p class="crumbs"><a href="#/incidents">Incidents</a><span>›</span><span>${id}</span></p>
      <div class="row"><${IncidentKind} incident=${incident} /><span class="muted">
        <${JobLink} id=${incident.job} name=${incident.job_name} />, attempt ${incident.attempt}, ${dateTime(openedAt(incident))}</span></div>
      <h1 class="incident-sentence"><${Text}>${incident.sentence}<//></h1>
      ${incident.diagnosis && html`<p>Known error: <${Text}>${incident.diagnosis}<//></p>`}
      <p><b>Action:</b> <${Text}>${incident.action || "none yet"}<//></p>
    </div>
    <${Cost} incident=${incident} />
    <${Panel} title="Time line"><div class="body"><${Timeline} incident=${incident} /></div><//>
    <div class="columns">
      <div class="wide-5"><${Panel} title="Suspects"><div class="body">
        ${incident.suspects.length === 0 ? html`<p class="empty">No rank stands out.</p>` : html`<ol class="suspects">
          ${incident.suspects.map((/** @type {any} */ one, /** @type {number} */ i) => html`<${Suspect} key=${i} suspect=${one} job=${incident.job} />`)}</ol>`}
      </div><//></div>
      <div class="wide-7"><${Panel} title="Collectives around the fault"><div class="body"><${Collectives} ranks=${ranks} suspect=${suspect} /></div><//></div>
    </div>
    <${Panel} title="Stacks of all ranks, merged"><div class="body"><${Icicle} classes=${incident.stacks?.classes ?? []} suspect=${suspect} dropped=${incident.stacks?.dropped ?? 0} /></div><//>
    <${Panel} title="Last lines" aside=${html`<a href=${`#/jobs/${incident.job}/logs?attempt=${incident.attempt}${suspect >= 0 ? `&rank=${suspect}` : ""}`}>Logs of the attempt</a>`}><div class="body last-lines">
      ${ranks.length === 0 && html`<p class="empty">No evidence about ranks was stored.</p>`}
      ${ranks.map((rank, i) => html`<${LastLines} key=${rank.rank} rank=${rank} isFirst=${i === 0} />`)}
      ${incident.kernel_messages?.length > 0 && html`<details open><summary>Kernel messages</summary>
        <pre class="lines" tabindex="0" aria-label="Kernel messages">${incident.kernel_messages.map(cleanLine).join("\n")}</pre></details>`}
    </div><//>
    <p class="muted">The same on a terminal: <code>muster incident show ${id}</code>${incident.job_name && html` of job ${shorten(incident.job_name, 60)}`}</p>
  `;
}
