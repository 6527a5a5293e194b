// The newest collective of each process group across ranks: who is in it, since when, and who never
// entered it.
import { html, useMemo, useState } from "../html.js";
import { bytes, count, duration } from "../format.js";
import { cleanLine } from "../text.js";

const RANKS_SHOWN = 48;

/** @typedef {{rank: number, group: any, state: "waits" | "behind" | "done"}} Row */

/** Groups of one name, such as those of two pipeline stages, differ by their id. @param {any} group */
function keyOf(group) {
  return `${group.name} ${group.id}`;
}

/**
 * Returns the rows of one group. A rank is behind if others have started a later collective.
 * @param {any[]} ranks @param {string} key @param {number} suspect
 * @returns {Row[]}
 */
export function rowsOf(ranks, key, suspect) {
  const found = ranks.flatMap((rank) => rank.groups.filter((/** @type {any} */ group) => keyOf(group) === key).map((/** @type {any} */ group) => ({ rank: rank.rank, group })));
  const newest = Math.max(...found.map((one) => one.group.started));
  /** @type {Row[]} */
  const rows = found.map(({ rank, group }) => ({ rank, group, state: group.started < newest ? "behind" : group.completed < group.started ? "waits" : "done" }));
  const order = (/** @type {Row} */ row) => (row.rank === suspect ? 0 : row.state === "behind" ? 1 : 2);
  return rows.sort((a, b) => order(a) - order(b) || a.rank - b.rank);
}

/**
 * Returns how much a group explains: whether ranks wait in it for one that is behind, and whether the
 * suspect is in it.
 * @param {any[]} ranks @param {string} key @param {number} suspect
 */
function weightOf(ranks, key, suspect) {
  const rows = rowsOf(ranks, key, suspect);
  const some = (/** @type {Row["state"]} */ state) => rows.some((row) => row.state === state);
  return (some("waits") ? (some("behind") ? 4 : 1) : 0) + (rows.some((row) => row.rank === suspect) ? 2 : 0);
}

/** Returns the key of the group that is shown first; "": there is none. @param {any[]} ranks @param {number} suspect */
export function mainGroup(ranks, suspect) {
  const keys = [...new Set(ranks.flatMap((rank) => rank.groups.map(keyOf)))];
  return keys.sort((a, b) => weightOf(ranks, b, suspect) - weightOf(ranks, a, suspect))[0] ?? "";
}

/** @param {Map<string, any>} groups @param {string} key */
function isRepeated(groups, key) {
  return [...groups.values()].filter((group) => group.name === groups.get(key).name).length > 1;
}

const STATES = { waits: "waits in it", behind: "has not entered it", done: "has completed it" };

/** @param {{ranks: any[], suspect: number}} props */
export function Collectives({ ranks, suspect }) {
  const groups = useMemo(() => new Map(ranks.flatMap((rank) => rank.groups.map((/** @type {any} */ group) => [keyOf(group), group]))), [ranks]);
  const keys = [...groups.keys()];
  const initial = useMemo(() => mainGroup(ranks, suspect), [ranks, suspect]);
  const [chosen, setChosen] = useState("");
  const key = groups.has(chosen) ? chosen : initial;
  const rows = useMemo(() => rowsOf(ranks, key, suspect), [ranks, key, suspect]);
  if (keys.length === 0) return html`<p class="empty">No rank has reported a process group.</p>`;
  const longest = Math.max(...rows.map((row) => row.group.age_seconds ?? 0), 0.001);
  const shown = rows.slice(0, RANKS_SHOWN);
  const waiting = rows.filter((row) => row.state === "waits");
  return html`
    <div class="row">
      <label class="inline-field">Group <select value=${key} onChange=${(/** @type {any} */ event) => setChosen(event.target.value)}>
        ${keys.map((one) => html`<option key=${one} value=${one}>${cleanLine(groups.get(one).name)}${isRepeated(groups, one) ? ` (id ${groups.get(one).id})` : ""}</option>`)}</select></label>
      ${waiting[0] && html`<span class="muted"><bdi>
        ${cleanLine(waiting[0].group.kind)} ${count(waiting[0].group.number)} “${cleanLine(waiting[0].group.collective)}”</bdi>, ${bytes(waiting[0].group.bytes)}</span>`}
    </div>
    <div class="scroll-x"><table class="plain collectives">
      <thead><tr><th class="number">Rank</th><th class="number">Started</th><th class="number">Done</th>
        <th class="time">Time before the sample<span class="visually-hidden"> in the present state</span></th><th>State</th></tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${row.rank} class=${row.rank === suspect ? "marked" : ""}>
        <td class="number">${row.rank}</td><td class="number">${count(row.group.started)}</td><td class="number">${count(row.group.completed)}</td>
        <td class="time"><span class="track" title=${`${duration(row.group.age_seconds)} in this state`}>
          <span class=${row.state} style=${{ width: `${((row.group.age_seconds ?? 0) / longest) * 100}%` }}></span></span><span class="muted">
          ${duration(row.group.age_seconds)}</span></td>
        <td>${STATES[row.state]}</td>
      </tr>`)}</tbody>
    </table></div>
    ${rows.length > shown.length && html`<p class="muted">${count(rows.length - shown.length)} more ranks</p>`}`;
}
