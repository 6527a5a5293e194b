// The curves of a job on one time axis, with attempts and incidents.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { ApiError, getJson } from "../api.js";
import { useLive } from "../live.js";
import { compact, compactTick, duration, durationTick, figure, numberTick, percent, percentTick } from "../format.js";
import { columnsOf, curve, emptyColumns, lastTime, merge, smoothed } from "../series.js";
import { changeZoom, Chart, newZoom } from "../components/chart.js";
import { LoadError, Panel } from "../components/parts.js";
import { openedAt } from "./incidents.js";

/** @type {{key: string, title: string, format: (value: number) => string, axis: (value: number, distance: number) => string}[]} */
const CURVES = [
  { key: "loss", title: "Loss", format: figure, axis: numberTick },
  { key: "grad_norm", title: "Gradient norm", format: figure, axis: numberTick },
  { key: "step_seconds", title: "Step time", format: duration, axis: durationTick },
  { key: "tokens_per_second", title: "Tokens per second", format: compact, axis: compactTick },
  { key: "mfu", title: "MFU", format: (value) => percent(value), axis: percentTick },
  { key: "learning_rate", title: "Learning rate", format: figure, axis: numberTick },
];
const SMOOTHING = /** @type {[number, string][]} */ ([[0, "none"], [0.6, "weak"], [0.9, "medium"], [0.98, "strong"]]);
const SPANS = /** @type {[number, string][]} */ ([[0, "all"], [21600, "6 h"], [3600, "1 h"], [600, "10 min"]]);

/** Returns the job's points, which grow while the page is open. @param {number} id */
function usePoints(id) {
  const live = useLive();
  const columns = useRef(emptyColumns());
  const taken = useRef(0);
  const [version, setVersion] = useState(0);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const points = live.job?.id === id ? live.points : [];
  useEffect(() => {
    const abort = new AbortController();
    getJson(`jobs/${id}/metrics?since_unix_ns=${Math.floor(lastTime(columns.current))}`, abort.signal).then((answer) => {
      merge(columns.current, answer.columns);
      setError(null);
      setVersion((old) => old + 1);
    }).catch((problem) => {
      if (!abort.signal.aborted && !(problem instanceof ApiError && problem.status === 404)) setError(problem);
    });
    return () => abort.abort();
  }, [id, live.connections]);
  const newest = points[points.length - 1]?.unix_ns ?? 0;
  useEffect(() => {
    if (newest <= taken.current) return;
    const fresh = points.filter((/** @type {any} */ point) => point.unix_ns > taken.current);
    taken.current = newest;
    merge(columns.current, columnsOf(fresh));
    setVersion((old) => old + 1);
  }, [newest]);
  return { columns: columns.current, version, error };
}

/** @param {any[]} attempts @param {any[]} incidents @returns {import("../components/chart.js").Mark[]} */
function marksOf(attempts, incidents) {
  /** @type {import("../components/chart.js").Mark[]} */
  const marks = attempts.filter((one) => one.started_unix_ns > 0).map((one) => ({ from: one.started_unix_ns / 1e9, label: `attempt ${one.attempt}`, tone: "muted" }));
  for (const incident of incidents) {
    const recovery = incident.recovery;
    const from = (recovery?.last_progress_unix_ns || recovery?.detected_unix_ns || openedAt(incident)) / 1e9;
    const to = recovery?.first_step_unix_ns ? recovery.first_step_unix_ns / 1e9 : undefined;
    marks.push({ from, to, label: `incident ${incident.id}`, tone: "bad" });
  }
  return marks;
}

/** @param {{job: any, attempts: any[], incidents: any[]}} props */
export function Curves({ job, attempts, incidents }) {
  const { columns, version, error } = usePoints(job.id);
  const [weight, setWeight] = useState(0);
  const zoom = useRef(newZoom());
  const [zoomed, setZoomed] = useState(false);
  useEffect(() => {
    const update = () => setZoomed(zoom.current.range !== null || zoom.current.spanSeconds > 0);
    zoom.current.listeners.add(update);
    return () => {
      zoom.current.listeners.delete(update);
    };
  }, []);
  const incidentKey = incidents.map((one) => `${one.id} ${one.recovery?.first_step_unix_ns ?? 0}`).join();
  const marks = useMemo(() => marksOf(attempts, incidents), [attempts.length, incidentKey]);
  const curves = useMemo(() => CURVES.map((one) => {
    const [times, values] = curve(columns, one.key);
    const smooth = smoothed(values, weight);
    const lines = [{ values, colour: "curve-1", faint: true, width: 1 }, { values: smooth, colour: "curve-1", width: 1.5 }];
    const last = values.filter((value) => value !== null).pop();
    return { ...one, times, lines, last };
  }), [version, weight]);
  const known = curves.filter((one) => one.last !== undefined);
  const times = columns.unix_ns;

  /** @param {number} seconds */
  function showSpan(seconds) {
    zoom.current.spanSeconds = seconds;
    changeZoom(zoom.current, null);
  }

  return html`<${Panel} title="Curves" aside=${html`
      <div class="row" role="group" aria-label="Time span">
        ${SPANS.map(([seconds, name]) => html`<button type="button" class="button small" key=${name} disabled=${times.length < 2} onClick=${() => showSpan(seconds)}>${name}</button>`)}</div>
      <label class="inline-field">Smoothing <select value=${weight} onChange=${(/** @type {any} */ event) => setWeight(Number(event.target.value))}>
        ${SMOOTHING.map(([value, name]) => html`<option key=${name} value=${value}>${name}</option>`)}</select></label>
      <button type="button" class="button small" disabled=${!zoomed} onClick=${() => showSpan(0)}>Reset zoom</button>`}>
    <div class="body">
      <${LoadError} error=${error} what="Curves" />
      ${known.length === 0 ? html`<p class="empty">No rank has reported a step yet.</p>` : html`
        <div class="curves">${known.map((one) => html`<${Chart} key=${one.key} label=${one.title} times=${one.times} lines=${one.lines} marks=${marks} format=${one.format} axisFormat=${one.axis} group=${`job-${job.id}`} zoom=${zoom.current} note=${one.last === undefined ? "" : one.format(/** @type {number} */ (one.last))} />`)}</div>
        <div class="legend curves-legend"><span><i class="dashed"></i>start of an attempt</span><span><i class="span-bad">
          </i>incident, until the next step</span><span>Drag to zoom, double-click to reset.</span></div>`}
    </div>
  <//>`;
}
