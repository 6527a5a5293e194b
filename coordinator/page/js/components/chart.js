// A curve over time, drawn by uPlot. Charts of one group share the cursor and the zoom.
import uPlotOfVendor from "../../vendor/uplot-1.6.32.js";
import { html, useEffect, useRef } from "../html.js";
import { onThemeChange, themeColour } from "../theme.js";
import { axisTime, clockMs, time as clockTime } from "../format.js";

/**
 * @typedef {{from: number, to?: number, label: string, tone: "warn" | "bad" | "muted"}} Mark
 * A moment or a span in seconds.
 * @typedef {{values: (number | null)[], colour: string, width?: number, fill?: string, faint?: boolean}} Line
 * @typedef {{range: [number, number] | null, spanSeconds: number, listeners: Set<() => void>}} Zoom
 * Without a range, the newest `spanSeconds` are shown; 0: all.
 */

/** @returns {Zoom} */
export function newZoom() {
  return { range: null, spanSeconds: 0, listeners: new Set() };
}

/** @param {Zoom} zoom @param {[number, number] | null} range */
export function changeZoom(zoom, range) {
  zoom.range = range;
  for (const listener of zoom.listeners) listener();
}

/** @type {any} */
const uPlot = uPlotOfVendor;
const AXIS_FONT = '11px system-ui, "DejaVu Sans", sans-serif';

/** @param {Zoom | undefined} zoom @param {number} min @param {number} max of the data @returns {[number, number]} */
function shownRange(zoom, min, max) {
  if (zoom?.range) return zoom.range;
  const from = zoom && zoom.spanSeconds > 0 ? Math.max(min, max - zoom.spanSeconds) : min;
  return from === max ? [max - 1, max + 1] : [from, max];
}

/** @param {any} plot @param {Mark[]} marks */
function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const mark of marks) {
    const left = plot.valToPos(mark.from, "x", true);
    const right = mark.to ? Math.max(plot.valToPos(mark.to, "x", true), left + 1) : left;
    const colour = themeColour(`--${mark.tone}`);
    if (mark.to) {
      ctx.globalAlpha = 0.16;
      ctx.fillStyle = colour;
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
    }
    ctx.globalAlpha = 0.85;
    ctx.strokeStyle = colour;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash(mark.tone === "muted" ? [3 * devicePixelRatio, 3 * devicePixelRatio] : []);
    ctx.beginPath();
    ctx.moveTo(Math.round(left) + 0.5, bbox.top);
    ctx.lineTo(Math.round(left) + 0.5, bbox.top + bbox.height);
    ctx.stroke();
    if (mark.tone === "muted") continue;
    ctx.setLineDash([]);
    ctx.textAlign = "left";
    ctx.fillStyle = colour;
    ctx.font = `${10 * devicePixelRatio}px system-ui, "DejaVu Sans", sans-serif`;
    ctx.fillText(mark.label, left + 4 * devicePixelRatio, bbox.top + 10 * devicePixelRatio);
  }
  ctx.restore();
}

/**
 * @param {object} props
 * @param {string} props.label
 * @param {number[]} props.times
 * @param {Line[]} props.lines
 * @param {Mark[]} [props.marks]
 * @param {number} [props.height]
 * @param {(value: number) => string} props.format
 * @param {(value: number, distance: number) => string} [props.axisFormat] of the marks of the axis
 * @param {string} [props.group] charts with the same name share the cursor
 * @param {Zoom} [props.zoom]
 * @param {[number, number]} [props.range] of the values
 * @param {string} [props.note] shown beside the label while no point is under the cursor
 * @param {boolean} [props.log]
 */
export function Chart({ label, times, lines, marks = [], height = 150, format, axisFormat = format, group, zoom, range, note, log }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const value = useRef(/** @type {HTMLSpanElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const latest = useRef({ times, lines, marks, format, note, axisFormat });
  latest.current = { times, lines, marks, format, note, axisFormat };
  const shape = `${lines.length} ${height} ${log} ${range}`;

  useEffect(() => {
    const element = /** @type {HTMLDivElement} */ (place.current);
    function showNote() {
      if (value.current) value.current.textContent = latest.current.note ?? "";
    }
    function create() {
      plot.current?.destroy();
      const axis = { stroke: themeColour("--muted"), font: AXIS_FONT, grid: { stroke: themeColour("--chart-grid"), width: 1 }, ticks: { show: false } };
      const stroke = (/** @type {string} */ name) => themeColour(`--${name}`);
      plot.current = new uPlot({
        width: Math.max(element.clientWidth, 100),
        height,
        legend: { show: false },
        padding: [6, 8, 0, 0],
        cursor: {
          drag: { x: true, y: false },
          sync: group ? { key: group } : undefined,
          points: { size: 6 },
          bind: { dblclick: () => () => zoom && changeZoom(zoom, null) },
        },
        scales: {
          x: { time: true, range: (/** @type {any} */ _, /** @type {number} */ min, /** @type {number} */ max) => shownRange(zoom, min, max) },
          y: { distr: log ? 3 : 1, ...(range ? { range: () => range } : {}) },
        },
        axes: [
          { ...axis, size: 26, space: 64, values: (/** @type {any} */ _, /** @type {number[]} */ splits, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number} */ distance) => splits.map((at) => axisTime(at, distance)) },
          { ...axis, size: 56, space: 28, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => labelsOf(ticks, latest.current.axisFormat) },
        ],
        series: [{}, ...latest.current.lines.map((line) => ({
          stroke: () => stroke(line.colour),
          fill: line.fill ? () => stroke(line.fill ?? "") : undefined,
          width: line.width ?? 1.5,
          alpha: line.faint ? 0.35 : 1,
          points: { show: false },
          spanGaps: false,
        }))],
        hooks: {
          draw: [(/** @type {any} */ self) => drawMarks(self, latest.current.marks)],
          setCursor: [(/** @type {any} */ self) => {
            const index = self.cursor.idx;
            const { times: at, lines: all } = latest.current;
            const found = index === null || index === undefined ? null : all[all.length - 1].values[index];
            if (found === null || found === undefined) return showNote();
            if (value.current) value.current.textContent = `${latest.current.format(found)} at ${clockTime(at[index] * 1e9)}`;
          }],
          setSelect: [(/** @type {any} */ self) => {
            if (!zoom || self.select.width < 4) return;
            changeZoom(zoom, [self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x")]);
            self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          }],
        },
      }, dataOf(latest.current), element);
      plot.current.root.style.width = "100%";
      showNote();
    }
    create();
    const redraw = () => plot.current.setData(dataOf(latest.current));
    const observer = new ResizeObserver(() => {
      const width = element.clientWidth;
      if (width > 0 && width !== plot.current.width) plot.current.setSize({ width, height });
    });
    observer.observe(element);
    const forget = onThemeChange(create);
    zoom?.listeners.add(redraw);
    return () => {
      observer.disconnect();
      forget();
      zoom?.listeners.delete(redraw);
      plot.current.destroy();
    };
  }, [shape, group]);

  useEffect(() => {
    plot.current?.setData(dataOf({ times, lines }));
    const isPointed = plot.current?.cursor.idx ?? null;
    if (value.current && isPointed === null) value.current.textContent = note ?? "";
  }, [times, lines, marks, note]);

  return html`<figure class="chart">
    <figcaption><b>${label}</b><span class="value" ref=${value}></span></figcaption>
    <div ref=${place} role="img" aria-label=${`${label}: ${summary(times, lines, format)}`} style=${{ minHeight: `${height}px` }}></div>
  </figure>`;
}

/**
 * Returns the labels of an axis. Their precision follows the distance of the marks, so that no
 * two are equal.
 * @param {(number | null)[]} ticks @param {(value: number, distance: number) => string} format
 */
function labelsOf(ticks, format) {
  const known = ticks.filter((tick) => tick !== null);
  const distance = known.length > 1 ? Math.abs(known[1] - known[0]) : 0;
  return ticks.map((tick) => (tick === null ? "" : format(tick, distance)));
}

/** @param {{times: number[], lines: Line[]}} data */
function dataOf({ times, lines }) {
  return [times, ...lines.map((line) => line.values)];
}

/** @param {number[]} times @param {Line[]} lines @param {(value: number) => string} format */
function summary(times, lines, format) {
  const known = /** @type {number[]} */ (lines[0]?.values.filter((one) => one !== null) ?? []);
  if (known.length === 0) return "no values yet";
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  return `from ${format(low)} to ${format(high)}, last ${format(known[known.length - 1])} at ${clockMs(times[times.length - 1] * 1e9)}`;
}
