// Every rank of a job as a cell, laid out by mesh axes or by node, coloured by a measure.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { getBinary, getJson, useLoaded } from "../api.js";
import { count } from "../format.js";
import { changeQuery, queryOfThisPage } from "../router.js";
import { cleanLine } from "../text.js";
import { LoadError, Panel } from "../components/parts.js";
import { readColumns } from "../mesh/columns.js";
import { axesDown, layOutByAxes, layOutByNode, layOutInOrder } from "../mesh/layout.js";
import { colourRanks, MEASURES } from "../mesh/colours.js";
import { MeshCanvas } from "../mesh/canvas.js";
import { MeshLegend } from "../mesh/legend.js";
import { RankDetails, RankFigures, RankRemarks } from "../mesh/rank_details.js";

const EVERY_MS = 1500;
// The width of the picture divided by its height.
const ASPECT = window.innerWidth < 640 ? 0.8 : 2;
const PLACEMENT_EVERY_MS = 5000;
const ADDRESS_AFTER_MS = 400;
const TIP_OFFSET = 14;
const TIP_WIDTH = 260;

/** @param {{placement: any, layout: string, down: string[]}} props */
function LayoutChoice({ placement, layout, down }) {
  const axes = placement.axes.filter((/** @type {any} */ axis) => axis.size > 1);
  return html`<label class="inline-field">Layout <select value=${layout} onChange=${(/** @type {any} */ event) => changeQuery({ layout: event.target.value })}>
      ${axes.length > 0 && html`<option value="axes">by mesh axes</option>`}<option value="node">by node and switch</option><option value="order">by rank</option>
    </select></label>
    ${layout === "axes" && html`<div class="chips" role="group" aria-label="Axes that run downwards">${axes.map((/** @type {any} */ axis) => html`<button type="button" class="chip" key=${axis.name}
        aria-pressed=${down.includes(axis.name) ? "true" : "false"} title=${`${axis.name} runs ${down.includes(axis.name) ? "downwards" : "to the right"}; press to change`}
        onClick=${() => changeQuery({ down: (down.includes(axis.name) ? down.filter((one) => one !== axis.name) : [...down, axis.name]).join(",") || "none" })}>${cleanLine(axis.name)} <span class="count">${axis.size} ${down.includes(axis.name) ? "↓" : "→"}</span></button>`)}</div>`}`;
}

/** @param {{ranks: any, placement: any, rank: number, x: number, y: number}} props */
function Tip({ ranks, placement, rank, x, y }) {
  const left = Math.min(x + TIP_OFFSET, window.innerWidth - TIP_WIDTH - 8);
  return html`<div class="tip" style=${{ left: `${left}px`, top: `${y + TIP_OFFSET}px`, width: `${TIP_WIDTH}px` }}>
    <${RankFigures} ranks=${ranks} placement=${placement} rank=${rank} brief=${true} /></div>`;
}

/** @param {any} ranks @param {any} placement @param {string} layout @param {string} down @param {string[]} chosenDown */
function useLayout(ranks, placement, layout, down, chosenDown) {
  return useMemo(() => {
    if (!ranks || !placement) return null;
    const axes = placement.axes.filter((/** @type {any} */ axis) => axis.size > 1);
    if (layout === "axes" && axes.length > 0) return layOutByAxes(ranks.count, ranks.ranksPerNode, placement.axes, chosenDown, ASPECT);
    return layout === "node" ? layOutByNode(ranks.count, ranks.ranksPerNode, placement.switches, ASPECT) : layOutInOrder(ranks.count, ASPECT);
  }, [ranks?.count, ranks?.ranksPerNode, placement, layout, down]);
}

/** Returns the same object while the placement is the same. @param {any} placement */
function usePlacement(placement) {
  const text = useMemo(() => (placement ? JSON.stringify(placement) : ""), [placement]);
  return useMemo(() => placement, [text]);
}

/**
 * Returns the chosen rank, which the address follows after a moment: browsers limit changes of it.
 * @param {string | null} given
 * @returns {[number, (rank: number) => void]}
 */
function useMarked(given) {
  const parsed = given !== null && /^\d{1,9}$/.test(given) ? Number(given) : -1;
  const [marked, setMarked] = useState(parsed);
  const timer = useRef(0);
  useEffect(() => setMarked(parsed), [parsed]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const choose = useCallback((/** @type {number} */ rank) => {
    setMarked(rank);
    clearTimeout(timer.current);
    const change = queryOfThisPage();
    timer.current = window.setTimeout(() => change({ rank: rank >= 0 ? String(rank) : "" }), ADDRESS_AFTER_MS);
  }, []);
  return [marked, choose];
}

/** @param {{job: any, query: URLSearchParams}} props */
export function MeshPanel({ job, query }) {
  const loaded = useLoaded(`ranks ${job.id}`, async (signal) => readColumns(await getBinary(`jobs/${job.id}/ranks`, signal)), EVERY_MS);
  const placed = useLoaded(`placement ${job.id} ${loaded.value?.attempt}`, (signal) => getJson(`jobs/${job.id}/placement`, signal), PLACEMENT_EVERY_MS);
  // Ranks of one attempt must not be named with the nodes of another.
  const areOfOneAttempt = loaded.value && placed.value && loaded.value.attempt === placed.value.attempt && loaded.value.count === placed.value.ranks;
  const ranks = areOfOneAttempt ? loaded.value : null;
  const placement = usePlacement(areOfOneAttempt ? placed.value : null);
  const hasAxes = placement?.axes.some((/** @type {any} */ axis) => axis.size > 1) ?? false;
  const layoutName = query.get("layout") ?? (hasAxes ? "axes" : "node");
  const down = query.get("down") ?? "";
  const chosenDown = useMemo(() => (down === "none" ? [] : down ? down.split(",") : axesDown(placement?.axes.filter((/** @type {any} */ axis) => axis.size > 1) ?? [], ASPECT)), [down, placement]);
  const measure = MEASURES.find((one) => one.key === query.get("by")) ?? MEASURES[0];
  const layout = useLayout(ranks, placement, layoutName, down, chosenDown);
  const colouring = useMemo(() => (ranks && placement ? colourRanks(ranks, measure, placement.phases) : null), [ranks, placement, measure]);
  const [marked, choose] = useMarked(query.get("rank"));
  const view = useRef(/** @type {import("../mesh/view.js").MeshView | null} */ (null));
  const [pointed, setPointed] = useState({ rank: -1, x: 0, y: 0 });
  const point = useCallback((/** @type {number} */ rank, /** @type {number} */ x, /** @type {number} */ y) => setPointed((old) => (old.rank === rank && rank < 0 ? old : { rank, x, y })), []);
  useEffect(() => setPointed({ rank: -1, x: 0, y: 0 }), [layout]);
  if (!ranks || !placement || !layout || !colouring) {
    return html`<${Panel} title="Mesh"><${LoadError} error=${loaded.error ?? placed.error} what="Ranks" />${!(loaded.error ?? placed.error) && html`<p class="empty">Loading the ranks…</p>`}<//>`;
  }
  if (ranks.count === 0) return html`<${Panel} title="Mesh"><p class="empty">The job has no ranks: it is not placed.</p><//>`;
  return html`<${Panel} title=${`${count(ranks.count)} ranks on ${count(Math.ceil(ranks.count / ranks.ranksPerNode))} nodes`} class="mesh" aside=${html`
      <label class="inline-field">Colour <select value=${measure.key} onChange=${(/** @type {any} */ event) => changeQuery({ by: event.target.value })}>
        ${MEASURES.map((one) => html`<option key=${one.key} value=${one.key} disabled=${!(one.column in ranks.columns)}>
          ${one.title}${one.column in ranks.columns ? "" : " (not reported)"}</option>`)}</select></label>
      <${LayoutChoice} placement=${placement} layout=${layoutName} down=${chosenDown} />
      <div class="row"><button type="button" class="button small" aria-label="Zoom in" onClick=${() => zoomBy(view.current, 1.5)}>+</button>
        <button type="button" class="button small" aria-label="Zoom out" onClick=${() => zoomBy(view.current, 1 / 1.5)}>−</button>
        <button type="button" class="button small" onClick=${() => view.current?.fit()}>Fit</button></div>`}>
    <${LoadError} error=${loaded.error} what="The ranks are not current" />
    <div class="mesh-body">
      <div class="mesh-main">
        <${MeshCanvas} layout=${layout} cells=${colouring.cells} marked=${marked} onChoose=${choose} onPoint=${point} onReady=${(/** @type {any} */ ready) => { view.current = ready; }}
          label=${`${ranks.count} ranks coloured by ${measure.title}. Arrow keys choose a rank, plus and minus zoom, 0 fits.`} />
        <${MeshLegend} colouring=${colouring} measure=${measure} />
      </div>
      <aside class="mesh-side">
        ${marked >= 0 && marked < ranks.count ? html`<${RankDetails} job=${job} ranks=${ranks} placement=${placement} rank=${marked} onClose=${() => choose(-1)} />` : html`<${RankRemarks} ranks=${ranks} placement=${placement} onChoose=${choose} />`}
      </aside>
    </div>
    ${pointed.rank >= 0 && pointed.rank < ranks.count && html`<${Tip} ranks=${ranks} placement=${placement} ...${pointed} />`}
  <//>`;
}

/** @param {import("../mesh/view.js").MeshView | null} view @param {number} factor */
function zoomBy(view, factor) {
  view?.zoom(factor, view.canvas.width / 2, view.canvas.height / 2);
}
