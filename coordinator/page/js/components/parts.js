// Small parts that several pages use.
import { html, useState } from "../html.js";
import { age, dateTime, percent, time } from "../format.js";
import { nowNs } from "../api.js";
import { clean, cleanLine, shorten } from "../text.js";

const LABEL_CHARACTERS_MAX = 200;

/** A text of a user or a program, isolated from the direction of its neighbours. @param {{children?: any}} props */
export function Text({ children }) {
  return html`<bdi>${[].concat(children ?? "").map(clean).join("")}</bdi>`;
}

/** @param {{id: number, name?: string}} props */
export function JobLink({ id, name }) {
  return html`<a href=${`#/jobs/${id}`} title=${name ? shorten(name, LABEL_CHARACTERS_MAX) : undefined}><bdi>${name === undefined ? `job ${id}` : cleanLine(name) || `job ${id}`}</bdi></a>`;
}

/** The age of a time. @param {{unixNs: number, short?: boolean}} props */
export function Age({ unixNs, short }) {
  if (!unixNs) return "–";
  return html`<time dateTime=${new Date(unixNs / 1e6).toISOString()} title=${dateTime(unixNs)}>${age(unixNs, nowNs())}${short ? "" : " ago"}</time>`;
}

/** @param {{unixNs: number}} props */
export function Time({ unixNs }) {
  if (!unixNs) return "–";
  return html`<time dateTime=${new Date(unixNs / 1e6).toISOString()} title=${dateTime(unixNs)}>${time(unixNs)}</time>`;
}

/** @param {{title: string, aside?: any, children?: any, class?: string, id?: string}} props */
export function Panel({ title, aside, children, class: name = "", id }) {
  return html`<section class=${`panel ${name}`} id=${id} aria-label=${title}>
    <header><h2>${title}</h2>${aside && html`<div class="aside">${aside}</div>`}</header>
    ${children}
  </section>`;
}

/** @param {{label: string, value: any, sub?: any}} props */
export function Stat({ label, value, sub }) {
  return html`<div><dt>${label}</dt><dd>${value}<div class="sub">${sub ?? ""}</div></dd></div>`;
}

/** @param {{share: number, label: string}} props */
export function Meter({ share, label }) {
  return html`<div class="meter" role="img" aria-label=${`${label}: ${percent(share, 0)}`}><span style=${{ width: percent(Math.min(1, Math.max(0, share)), 2) }}></span></div>`;
}

/**
 * A number that the address has. What one types stays while the page is drawn again, until Enter or
 * until another field is chosen.
 * @param {{label: string, value: number | string, min: number, max?: number, placeholder?: string, onChoose: (value: string) => void}} props
 */
export function NumberField({ label, value, min, max, placeholder, onChoose }) {
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  return html`<label class="inline-field">${label} <input class="narrow" type="number" min=${min} max=${max} placeholder=${placeholder} value=${typed ?? value}
    onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} onBlur=${() => setTyped(null)}
    onChange=${(/** @type {any} */ event) => {
      setTyped(null);
      onChoose(event.target.value);
    }} /></label>`;
}

/** @param {{error: Error | null, what: string}} props */
export function LoadError({ error, what }) {
  return error && html`<p class="notice bad" role="alert">${what}: ${clean(error.message)}</p>`;
}

/** @param {{text: string, label?: string}} props */
export function CopyButton({ text, label = "Copy" }) {
  return html`<button type="button" class="button small" onClick=${(/** @type {any} */ event) => {
    const button = event.currentTarget;
    navigator.clipboard?.writeText(text).then(() => {
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
  }}>${label}</button>`;
}
