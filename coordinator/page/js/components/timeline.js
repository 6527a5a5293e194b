// Shows the moments around a fault, from the last progress to the first step beyond the best one.
import { html } from "../html.js";
import { clockMs, dateTime, duration } from "../format.js";
import { cleanLine } from "../text.js";

/** @type {[string, string, string][]} moment, what the time before it was, colour */
const STAGES = [
  ["detected", "unnoticed", "loss-1"],
  ["evidence", "reading evidence", "loss-4"],
  ["decided", "deciding", "loss-3"],
  ["stopped", "stopping", "loss-other"],
  ["started", "waiting for nodes", "loss-6"],
  ["up", "starting processes", "loss-5"],
  ["loaded", "loading", "loss-2"],
  ["first_step", "first step", "productive"],
  ["caught_up", "repeating steps", "line-strong"],
];

/** @param {any} recovery @returns {{name: string, seconds: number, from: number, colour: string}[]} */
export function stagesOf(recovery) {
  const start = recovery?.last_progress_unix_ns;
  if (!start) return [];
  const stages = [];
  let before = start;
  for (const [moment, name, colour] of STAGES) {
    const at = recovery[`${moment}_unix_ns`];
    if (!at) continue;
    // An early verdict may precede the end of the evidence.
    const end = Math.max(at, before);
    stages.push({ name, seconds: (end - before) / 1e9, from: (before - start) / 1e9, colour });
    before = end;
  }
  return stages;
}

/** @param {{incident: any}} props */
export function Timeline({ incident }) {
  const stages = stagesOf(incident.recovery);
  const whole = stages.reduce((sum, stage) => sum + stage.seconds, 0);
  const first = incident.moments[0]?.unix_ns ?? 0;
  return html`
    ${whole > 0 && html`
      <div class="stages" role="img" aria-label=${`Recovery in ${duration(whole)}: ${stages.map((stage) => `${stage.name} ${duration(stage.seconds)}`).join(", ")}`}>
        ${stages.filter((stage) => stage.seconds > 0).map((stage) => html`<span key=${stage.name} title=${`${stage.name}: ${duration(stage.seconds)}`} style=${{ flexGrow: Math.max(stage.seconds / whole, 0.012), background: `var(--${stage.colour})` }}></span>`)}
      </div>
      <div class="legend stages-legend">${stages.filter((stage) => stage.seconds > 0).map((stage) => html`<span key=${stage.name}>
        <i style=${{ background: `var(--${stage.colour})` }}></i>${stage.name} <b>${duration(stage.seconds)}</b></span>`)}</div>`}
    <ol class="moments">${incident.moments.map((/** @type {any} */ moment, /** @type {number} */ i) => html`<li key=${i}>
      <time dateTime=${new Date(moment.unix_ns / 1e6).toISOString()} title=${dateTime(moment.unix_ns)}>${clockMs(moment.unix_ns)}</time>
      <span class="after">+${((moment.unix_ns - first) / 1e9).toFixed(3)} s</span>
      <bdi>${cleanLine(moment.text)}</bdi>
    </li>`)}</ol>`;
}
