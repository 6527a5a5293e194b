// Goodput of the fleet over time: a column per interval, productive time below and losses by cause
// above it.
import { html, useMemo, useState } from "../html.js";
import { getJson, useLoaded } from "../api.js";
import { duration, percent, time } from "../format.js";
import { causesOf, foldCauses, intervalsOf } from "../goodput_history.js";
import { causeColour, causeName, Swatch } from "../components/bars.js";
import { LoadError, Panel } from "../components/parts.js";

const EVERY_MS = 10000;
const INTERVALS_MAX = 72;
const HEIGHT = 168;
const CAUSES_SHOWN = 7;

/** @typedef {import("../goodput_history.js").Interval} Interval */

/** @param {{interval: Interval, order: string[], width: number, x: number, floor: number, onPoint: (interval: Interval | null) => void}} props */
function Column({ interval, order, width, x, floor, onPoint }) {
  const scale = (/** @type {number} */ share) => Math.max(0, (share - floor) / (1 - floor)) * HEIGHT;
  const known = interval.wall > 0;
  const productive = known ? interval.productive / interval.wall : 0;
  let top = HEIGHT - scale(productive);
  const parts = known ? [html`<rect class="productive" x=${x} y=${top} width=${width} height=${HEIGHT - top} />`] : [];
  let share = productive;
  for (const cause of order) {
    const seconds = interval.losses[cause] ?? 0;
    if (seconds <= 0 || !known) continue;
    share = Math.min(1, share + seconds / interval.wall);
    const next = HEIGHT - scale(share);
    parts.push(html`<rect x=${x} y=${next} width=${width} height=${Math.max(0, top - next)} style=${{ fill: `var(--${causeColour(cause)})` }} />`);
    top = next;
  }
  return html`<g onPointerEnter=${() => onPoint(interval)} onPointerLeave=${() => onPoint(null)}>
    <rect x=${x} y="0" width=${width} height=${HEIGHT} class="behind" />${parts}
  </g>`;
}

export function GoodputPanel() {
  const history = useLoaded("history", (signal) => getJson("fleet/history", signal), EVERY_MS);
  const [pointed, setPointed] = useState(/** @type {Interval | null} */ (null));
  const intervals = useMemo(() => (history.value ? foldCauses(intervalsOf(history.value, INTERVALS_MAX), CAUSES_SHOWN) : []), [history.value]);
  const causes = useMemo(() => causesOf(intervals), [intervals]);
  const order = causes.map(([cause]) => cause);
  const busy = intervals.filter((one) => one.wall > 0);
  const wall = busy.reduce((sum, one) => sum + one.wall, 0);
  const productive = busy.reduce((sum, one) => sum + one.productive, 0);
  // If little is lost, a scale from 0 would show nothing.
  const lowest = busy.reduce((least, one) => Math.min(least, one.productive / one.wall), 1);
  const floor = lowest > 0.9 ? 0.8 : lowest > 0.6 ? 0.5 : 0;
  const shown = pointed ?? { from: intervals[0]?.from ?? 0, to: intervals[intervals.length - 1]?.to ?? 0, wall, productive, losses: Object.fromEntries(causes) };
  const begin = intervals[0]?.from ?? 0;
  const scale = 1000 / Math.max((intervals[intervals.length - 1]?.to ?? 0) - begin, 1);
  return html`<${Panel} title="Goodput over time" class="goodput" aside=${html`<span class="muted">
    ${busy.length > 0 && html`${shown.wall > 0 ? percent(shown.productive / shown.wall) : "no job ran"} from ${time(shown.from * 1e9)} to ${time(shown.to * 1e9)}`}</span>`}>
    <div class="body">
      <${LoadError} error=${history.error} what="History" />
      ${busy.length === 0 ? html`<p class="empty">No job has run since the coordinator started.</p>` : html`
      <div class="goodput-plot">
        <div class="scale" aria-hidden="true"><span>100%</span><span>${percent((1 + floor) / 2, 0)}</span><span>${percent(floor, 0)}</span></div>
        <svg viewBox=${`0 0 1000 ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`Goodput ${percent(productive / wall)} over ${duration(wall)} of jobs`}>
          ${intervals.map((interval) => html`<${Column} key=${interval.from} interval=${interval} order=${order} x=${(interval.from - begin) * scale} width=${Math.max(1, (interval.to - interval.from) * scale - 1.5)} floor=${floor} onPoint=${setPointed} />`)}
        </svg>
        <div class="ends" aria-hidden="true"><span>${time(intervals[0].from * 1e9)}</span><span>${time(intervals[intervals.length - 1].to * 1e9)}</span></div>
      </div>
      <div class="legend">
        <span><${Swatch} colour="productive" />productive ${shown.wall > 0 ? percent(shown.productive / shown.wall) : "–"}</span>
        ${causes.map(([cause]) => html`<span key=${cause}><${Swatch} colour=${causeColour(cause)} />${causeName(cause)} ${duration(shown.losses[cause] ?? 0)}</span>`)}
      </div>`}
    </div>
  <//>`;
}
