// The newest collective of each process group across ranks: who is in it, since when, and who never
// entered it.
import { html, useMemo, useState } from "../html.js";
import { bytes, count, duration } from "../format.js";
import { cleanLine } from "../text.js";

const RANKS_SHOWN = 48;

/** @typedef {{rank: number, group: any, state: "waits" | "behind" | "done"}} Row */

/**
 * Returns the rows of one group. A rank is behind if others have started a later collective.
 * @param {any[]} ranks @param {string} name
 * @returns {Row[]}
 */
export function rowsOf(ranks, name) {
  const found = ranks.flatMap((rank) => rank.groups.filter((/** @type {any} */ group) => group.name === name).map((/** @type {any} */ group) => ({ rank: rank.rank, group })));
  const newest = Math.max(...found.map((one) => one.group.started));
  return found.map(({ rank, group }) => ({ rank, group, state: group.started < newest ? "behind" : group.completed < group.started ? "waits" : "done" }));
}

const STATES = { waits: "waits in it", behind: "has not entered it", done: "has completed it" };

/** @param {{ranks: any[], suspect: number}} props */
export function Collectives({ ranks, suspect }) {
  const names = useMemo(() => [...new Set(ranks.flatMap((rank) => rank.groups.map((/** @type {any} */ group) => group.name)))], [ranks]);
  // The group in which ranks differ the most is the interesting one.
  const initial = useMemo(() => [...names].sort((a, b) => disagreement(ranks, b) - disagreement(ranks, a))[0] ?? "", [names]);
  const [chosen, setChosen] = useState("");
  const name = names.includes(chosen) ? chosen : initial;
  const rows = useMemo(() => rowsOf(ranks, name), [ranks, name]);
  if (names.length === 0) return html`<p class="empty">No rank has reported a process group.</p>`;
  const longest = Math.max(...rows.map((row) => row.group.age_seconds ?? 0), 0.001);
  const shown = rows.slice(0, RANKS_SHOWN);
  const waiting = rows.filter((row) => row.state === "waits");
  return html`
    <div class="row">
      <label class="inline-field">Group <select value=${name} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>
        ${names.map((one) => html`<option key=${one} value=${one}>${cleanLine(one)}</option>`)}</select></label>
      ${waiting[0] && html`<span class="muted"><bdi>${cleanLine(waiting[0].group.kind)} ${count(waiting[0].group.number)} “${cleanLine(waiting[0].group.collective)}”</bdi>, ${bytes(waiting[0].group.bytes)}</span>`}
    </div>
    <div class="scroll-x"><table class="plain collectives">
      <thead><tr><th class="number">Rank</th><th class="number">Started</th><th class="number">Done</th><th class="time">Time before the sample<span class="visually-hidden"> in the present state</span></th><th>State</th></tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${row.rank} class=${row.rank === suspect ? "marked" : ""}>
        <td class="number">${row.rank}</td><td class="number">${count(row.group.started)}</td><td class="number">${count(row.group.completed)}</td>
        <td class="time"><span class="track" title=${`${duration(row.group.age_seconds)} in this state`}><span class=${row.state} style=${{ width: `${((row.group.age_seconds ?? 0) / longest) * 100}%` }}></span></span><span class="muted">${duration(row.group.age_seconds)}</span></td>
        <td>${STATES[row.state]}</td>
      </tr>`)}</tbody>
    </table></div>
    ${rows.length > shown.length && html`<p class="muted">${count(rows.length - shown.length)} more ranks</p>`}`;
}

/** @param {any[]} ranks @param {string} name */
function disagreement(ranks, name) {
  const rows = rowsOf(ranks, name);
  return rows.some((row) => row.state === "behind") ? 2 : rows.some((row) => row.state === "waits") ? 1 : 0;
}
