// Shows the losses of a job's time: one bar per loss, each beginning where the previous
// one ends, and the productive rest.
import { html } from "../html.js";
import { duration, percent } from "../format.js";
import { clean } from "../text.js";

export const OTHER_COLOUR = "loss-other";
// Faults have strong colours. Time that no fault caused is named by its activity.
/** @type {Record<string, string>} */
const CAUSE_COLOURS = {
  hang: "loss-1", "rank died": "loss-2", "worker lost": "loss-3", "out of memory": "loss-6", "gpu fault": "loss-5", preempted: "loss-7", planned: "loss-7",
  none: "loss-4", loading: "loss-4", starting: "loss-8", "checkpoint stall": "loss-9", evaluating: "loss-10", recomputing: "loss-11",
};
const ROWS_MAX = 10;

/**
 * Returns a colour for each cause: the same one on all pages.
 * @param {string} cause
 */
export function causeColour(cause) {
  return CAUSE_COLOURS[cause] ?? OTHER_COLOUR;
}

/** @param {string} cause */
export function causeName(cause) {
  return cause === "none" ? "no fault" : clean(cause);
}

/** @param {{colour: string}} props */
export function Swatch({ colour }) {
  return html`<i style=${{ background: `var(--${colour})` }}></i>`;
}

/** @param {{goodput: any}} props */
export function Waterfall({ goodput }) {
  if (!goodput || !(goodput.wall_seconds > 0)) return html`<p class="empty">No attempt has started yet.</p>`;
  const wall = goodput.wall_seconds;
  const losses = [...goodput.losses].sort((a, b) => b.seconds - a.seconds);
  const shown = losses.slice(0, ROWS_MAX);
  const rest = losses.slice(ROWS_MAX).reduce((sum, loss) => sum + loss.seconds, 0);
  // If little is lost, bars from zero would show nothing: they begin where productive time ends.
  const share = goodput.productive_seconds / wall;
  const base = share > 0.6 ? Math.max(0, 1 - 1.3 * (1 - share)) : 0;
  const across = (/** @type {number} */ seconds) => Math.min(1, Math.max(0, (seconds / wall - base) / (1 - base || 1)));
  const rows = [{ name: "all time since the first start", seconds: wall, from: 0, colour: "line-strong" }];
  let left = wall;
  for (const loss of shown) {
    left -= loss.seconds;
    rows.push({ name: loss.cause === "none" ? clean(loss.what) : `${clean(loss.what)} after ${clean(loss.cause)}`, seconds: loss.seconds, from: left, colour: causeColour(loss.cause === "none" ? loss.what : loss.cause) });
  }
  if (rest > 0) {
    left -= rest;
    rows.push({ name: `${losses.length - shown.length} smaller losses`, seconds: rest, from: left, colour: OTHER_COLOUR });
  }
  rows.push({ name: "productive", seconds: goodput.productive_seconds, from: 0, colour: "productive" });
  return html`<table class="plain waterfall">
    <caption class="visually-hidden">Goodput: productive time and losses</caption>
    <thead class="visually-hidden"><tr><th>time</th><th>share</th><th>duration</th><th>part</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.name}>
      <td class="name">${row.name}</td>
      <td class="bar"><span style=${{ left: percent(across(row.from), 3), width: percent(across(row.from + row.seconds) - across(row.from), 3), background: `var(--${row.colour})` }}></span></td>
      <td class="number">${duration(row.seconds)}</td>
      <td class="number muted">${percent(row.seconds / wall)}</td>
    </tr>`)}</tbody>
  </table>
  ${base > 0 && html`<p class="muted hint">The bars begin at ${percent(base)} of the time.</p>`}`;
}
