// The legend of a mesh: the categories with their numbers of ranks, or the scale with its ends.
import { html } from "../html.js";
import { count } from "../format.js";
import { cividis } from "./colours.js";

const STEPS = 24;

/** @param {{colouring: import("./colours.js").Colouring, measure: import("./colours.js").Measure}} props */
export function MeshLegend({ colouring, measure }) {
  const { entries, range, unknown } = colouring;
  return html`<div class="legend mesh-legend" role="group" aria-label=${`Legend: ${measure.title}`}>
    ${entries.map((entry) => html`<span key=${entry.label}><i style=${{ background: entry.colour }}></i>${entry.label} <b>${count(entry.count)}</b></span>`)}
    ${range && html`<span class="scale-legend"><b>${measure.title}</b> ${measure.format(range[0])}
      <span class="ramp" aria-hidden="true">
        ${Array.from({ length: STEPS }, (_, i) => html`<i key=${i} style=${{ background: cividis((measure.inverted ? STEPS - 1 - i : i) / (STEPS - 1)) }}></i>`)}</span>
      ${measure.format(range[1])}</span>`}
    ${unknown > 0 && html`<span><i class="unknown"></i>unknown <b>${count(unknown)}</b></span>`}
  </div>`;
}
