// The figures of one rank, and the ranks that differ the most from the others.
import { html, useMemo } from "../html.js";
import { getJson, hasRole, useLoaded } from "../api.js";
import { bytes, compact, count, duration, figure, percent } from "../format.js";
import { cleanLine } from "../text.js";
import { useConfirm } from "../components/dialog.js";
import { excludeRequest } from "../components/exclude_node.js";
import { Text } from "../components/parts.js";
import { LIVES, NODE_STATES } from "./colours.js";
import { valueOf } from "./columns.js";
import { coordinates } from "./layout.js";

const REMARKS_MAX = 8;
const SLOW_FROM = 1.15;
const SILENT_SECONDS = 3;
const SAMPLE_MAX = 1000;

/** @param {any} placement @param {any} ranks @param {number} rank */
export function nodeOf(placement, ranks, rank) {
  return placement.nodes[Math.floor(rank / ranks.ranksPerNode)] ?? "";
}

/** @param {any} ranks @param {any} placement @param {number} rank @returns {[string, string][]} */
function figuresOf(ranks, placement, rank) {
  const value = (/** @type {string} */ name) => valueOf(ranks, name, rank);
  /** @type {[string, string][]} */
  const rows = [];
  const add = (/** @type {string} */ name, /** @type {string} */ column, /** @type {(value: number) => string} */ format) => {
    const found = value(column);
    if (Number.isFinite(found)) rows.push([name, format(found)]);
  };
  rows.push(["phase", placement.phases[value("phase")] ?? "unknown"]);
  rows.push(["process", LIVES[value("life")]?.[0] ?? "unknown"]);
  add("step", "step", (step) => (step < 0 ? "none yet" : count(step)));
  add("no progress for", "progress_age", duration);
  add("step time", "step_seconds", (seconds) => (seconds > 0 ? duration(seconds) : "unknown"));
  add("own time", "straggler", (score) => (score > 0 ? `${score.toFixed(2)}× the median rank` : "unknown"));
  add("loss", "loss", figure);
  add("gradient norm", "grad_norm", figure);
  add("tokens/s", "tokens_per_second", compact);
  add("MFU", "mfu", (mfu) => percent(mfu));
  add("temperature", "temperature", (degrees) => `${degrees.toFixed(0)} °C`);
  add("GPU memory", "memory", bytes);
  add("node's heartbeat", "node_heartbeat_age", (age) => `${duration(age)} ago`);
  const state = NODE_STATES[value("node_state")]?.[0];
  if (state && state !== "connected") rows.push(["node", state]);
  return rows;
}

/** @param {{ranks: any, placement: any, rank: number, brief?: boolean}} props */
export function RankFigures({ ranks, placement, rank, brief }) {
  const local = rank % ranks.ranksPerNode;
  const axes = placement.axes;
  const at = coordinates(rank, axes, ranks.ranksPerNode);
  const position = axes.map((/** @type {any} */ axis, /** @type {number} */ i) => [axis, at[i]]).filter((/** @type {any} */ [axis]) => axis.size > 1).map((/** @type {any} */ [axis, i]) => `${cleanLine(axis.name)} ${i}`).join(", ");
  const rows = figuresOf(ranks, placement, rank);
  return html`
    <p><b>rank ${rank}</b> on <bdi>${cleanLine(nodeOf(placement, ranks, rank))}</bdi>, local rank ${local}</p>
    ${position && html`<p class="muted">${position}</p>`}
    <dl class="facts tight">${(brief ? rows.slice(0, 6) : rows).map(([name, text]) => html`<dt key=${name}>${name}</dt><dd>${text}</dd>`)}</dl>`;
}

/** @param {{job: any, ranks: any, placement: any, rank: number, onClose: () => void}} props */
export function RankDetails({ job, ranks, placement, rank, onClose }) {
  const node = nodeOf(placement, ranks, rank);
  const loaded = useLoaded(`node ${node}`, node ? (signal) => getJson(`nodes/${encodeURIComponent(node)}`, signal) : null);
  const { confirm, elements } = useConfirm();
  const mayExclude = hasRole("admin");
  const gpus = loaded.value?.gpus ?? [];
  return html`<div class="rank-details">
    <${RankFigures} ranks=${ranks} placement=${placement} rank=${rank} />
    ${gpus.length > 0 && html`<p>GPUs of the node: ${count(gpus.length)} × <${Text}>${gpus[0].name}<//></p>`}
    <div class="row">
      <a class="button small" href=${`#/jobs/${job.id}/logs?rank=${rank}`}>Log</a>
      <a class="button small" href=${`#/nodes/${encodeURIComponent(node)}`}>Node</a>
      <button type="button" class="button small danger" disabled=${!mayExclude || !node} title=${mayExclude ? undefined : "This needs the role admin"}
        onClick=${() => confirm(excludeRequest(node, loaded.reload))}>Exclude node…</button>
      <button type="button" class="button small" onClick=${onClose}>Close</button>
    </div>
    ${loaded.value?.exclusion && html`<p class="muted">The node is excluded: <${Text}>${loaded.value.exclusion.reason}<//></p>`}
    ${elements}
  </div>`;
}

/**
 * Returns the middle of the known values, from at most a thousand of them; NaN: none is known.
 * @param {ArrayLike<number> | undefined} values
 */
function typical(values) {
  if (!values) return NaN;
  const stride = Math.max(1, Math.floor(values.length / SAMPLE_MAX));
  const known = [];
  for (let i = 0; i < values.length; i += stride) if (values[i] > 0) known.push(values[i]);
  known.sort((a, b) => a - b);
  return known.length > 0 ? known[known.length >> 1] : NaN;
}

/**
 * Returns the ranks that a person should see first: silent ones, slow ones, those behind, and those
 * of nodes that do not report.
 * @param {any} ranks
 */
export function remarksOf(ranks) {
  const { straggler, progress_age: ages, step: steps, step_seconds: stepSeconds, node_state: nodeStates, life: lives } = ranks.columns;
  const shown = /** @type {any[]} */ ([]);
  let total = 0;
  let best = -1;
  for (let rank = 0; steps && rank < ranks.count; ++rank) best = Math.max(best, steps[rank]);
  // A rank reports progress at the end of a step.
  const usual = Math.max(typical(stepSeconds) || 0, typical(ages) || 0);
  const silentFrom = Math.max(SILENT_SECONDS, 2 * usual);
  for (let rank = 0; rank < ranks.count; ++rank) {
    const slow = straggler?.[rank] > SLOW_FROM ? straggler[rank] : 0;
    const silent = ages?.[rank] > silentFrom && lives?.[rank] !== 2 ? ages[rank] : 0;
    const behind = steps && steps[rank] >= 0 && best - steps[rank] > 1 ? best - steps[rank] : 0;
    const node = nodeStates?.[Math.floor(rank / ranks.ranksPerNode)] ?? 0;
    const weight = silent / silentFrom + slow + behind + (node > 0 ? 1 : 0);
    if (weight === 0) continue;
    ++total;
    if (shown.length === REMARKS_MAX && weight <= shown[REMARKS_MAX - 1].weight) continue;
    shown.push({ rank, slow, silent, behind, node, weight });
    shown.sort((a, b) => b.weight - a.weight);
    shown.length = Math.min(shown.length, REMARKS_MAX);
  }
  return { shown, total, isKnown: best >= 0 };
}

/** @param {{ranks: any, placement: any, onChoose: (rank: number) => void}} props */
export function RankRemarks({ ranks, placement, onChoose }) {
  const { shown, total, isKnown } = useMemo(() => remarksOf(ranks), [ranks]);
  const words = (/** @type {any} */ one) => [one.node > 0 && `its node is ${NODE_STATES[one.node]?.[0] ?? "unknown"}`, one.silent > 0 && `no progress for ${duration(one.silent)}`,
    one.slow > 0 && `${one.slow.toFixed(2)}× the median's own time`, one.behind > 0 && `${count(one.behind)} steps behind`].filter(Boolean).join(", ");
  return html`<h3>Ranks that stand out</h3>
    ${total === 0 && html`<p class="muted">${isKnown ? "None: every rank makes progress at about the same speed." : "No rank has reported a step yet."}</p>`}
    ${total > 0 && html`<ul class="remarks">${shown.map((one) => html`<li key=${one.rank}>
      <button type="button" class="link" onClick=${() => onChoose(one.rank)}>rank ${one.rank}</button> <span class="muted"><bdi>
        ${cleanLine(nodeOf(placement, ranks, one.rank))}</bdi></span><br />${words(one)}
    </li>`)}</ul>`}
    ${total > shown.length && html`<p class="muted">${count(total - shown.length)} more</p>`}
    <p class="muted hint">Choose a cell to see its rank. Click the picture, then the wheel zooms; drag to move.</p>`;
}
