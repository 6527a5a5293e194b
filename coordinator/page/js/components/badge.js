// The state of a job, a node or an incident: a colour, a shape and a word, so that no meaning
// depends on the colour alone.
import { html } from "../html.js";

/** @typedef {"good" | "busy" | "warn" | "bad" | "quiet"} Tone */

const SHAPES = {
  good: "M5 0a5 5 0 1 0 0 10A5 5 0 0 0 5 0z",
  busy: "M5 0a5 5 0 1 0 0 10A5 5 0 0 0 5 0zm0 1.6v6.8a3.4 3.4 0 0 0 0-6.8z",
  warn: "M5 .4 10 9.6H0z",
  bad: "M1.4 0 5 3.6 8.6 0 10 1.4 6.4 5 10 8.6 8.6 10 5 6.4 1.4 10 0 8.6 3.6 5 0 1.4z",
  quiet: "M5 0a5 5 0 1 0 0 10A5 5 0 0 0 5 0zm0 2a3 3 0 1 1 0 6 3 3 0 0 1 0-6z",
};

/** @type {Record<string, [Tone, string]>} */
const JOB_STATES = {
  QUEUED: ["quiet", "queued"],
  STARTING: ["busy", "starting"],
  RUNNING: ["good", "running"],
  SUSPECT: ["warn", "suspect"],
  DUMPING: ["warn", "reading stacks"],
  RESTARTING: ["busy", "restarting"],
  SUCCEEDED: ["quiet", "succeeded"],
  FAILED: ["bad", "failed"],
  CANCELLED: ["quiet", "cancelled"],
};

export const JOB_STATE_ORDER = Object.keys(JOB_STATES);

/** @param {string} state */
export function jobStateName(state) {
  return JOB_STATES[state]?.[1] ?? state.toLowerCase();
}

/** @param {{tone: Tone, children?: any, title?: string}} props */
export function Badge({ tone, children, title }) {
  return html`<span class=${`badge ${tone}`} title=${title}>
    <svg viewBox="0 0 10 10" aria-hidden="true"><path d=${SHAPES[tone]} /></svg>${children}
  </span>`;
}

/** @param {{state: string}} props */
export function JobState({ state }) {
  const [tone, name] = JOB_STATES[state] ?? ["quiet", String(state).toLowerCase()];
  return html`<${Badge} tone=${tone}>${name}<//>`;
}
