// The resolved config of a job, searchable, with the differences from another job.
import { html, useMemo } from "../html.js";
import { getJson, useLoaded } from "../api.js";
import { changeQuery } from "../router.js";
import { clean, cleanLine, matchesWords, wordsOf } from "../text.js";
import { CopyButton, LoadError, NumberField, Panel } from "../components/parts.js";

const VALUE_CHARACTERS_MAX = 400;
const OMITTED = ["train_config", "train_config_json", "config_origins", "smaller"];

/** @param {unknown} value @returns {string} */
function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/**
 * Returns the config's keys and values, of nested objects with dots, and the fields of the job.
 * @param {any} spec
 * @returns {Map<string, string>}
 */
export function flatten(spec) {
  /** @type {Map<string, string>} */
  const rows = new Map();
  const visit = (/** @type {string} */ prefix, /** @type {any} */ value) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0) {
      for (const [key, inner] of Object.entries(value)) visit(prefix ? `${prefix}.${key}` : key, inner);
    } else {
      rows.set(prefix, shown(value));
    }
  };
  for (const [key, value] of Object.entries(spec)) if (!OMITTED.includes(key)) visit(`job.${key}`, value);
  if (spec.train_config) visit("", spec.train_config);
  return rows;
}

/** @param {{job: any, full: any, error: Error | null, query: URLSearchParams}} props */
export function JobConfig({ job, full, error, query }) {
  const search = query.get("q") ?? "";
  const otherId = Number(query.get("with") ?? 0);
  const onlyDifferent = query.get("all") !== "1";
  const isId = Number.isInteger(otherId) && otherId > 0;
  const other = useLoaded(`config ${otherId}`, isId ? (signal) => getJson(`jobs/${otherId}?ranks=0`, signal) : null);
  const mine = useMemo(() => flatten(job.spec), [job.id, job.spec.train_config]);
  const others = useMemo(() => (other.value ? flatten(other.value.spec) : null), [other.value]);
  const origins = job.spec.config_origins ?? null;
  const keys = useMemo(() => {
    const words = wordsOf(search);
    const all = [...new Set([...mine.keys(), ...(others?.keys() ?? [])])].sort();
    return all.filter((key) => matchesWords(`${key} ${mine.get(key) ?? ""} ${others?.get(key) ?? ""}`.toLowerCase(), words) && (!others || !onlyDifferent || mine.get(key) !== others.get(key)));
  }, [mine, others, search, onlyDifferent]);
  const cut = (/** @type {string | undefined} */ value) => (value === undefined ? html`<span class="muted">absent</span>` : html`<bdi>
    ${clean(value.length > VALUE_CHARACTERS_MAX ? `${value.slice(0, VALUE_CHARACTERS_MAX)}…` : value)}</bdi>`);
  return html`<${Panel} title="Config" aside=${html`
      <input type="search" aria-label="Search keys and values" placeholder="Search keys and values" value=${search} onInput=${(/** @type {any} */ event) => changeQuery({ q: event.target.value })} />
      <${NumberField} label="Compare with job" min=${1} value=${isId ? otherId : ""} onChoose=${(/** @type {string} */ value) => changeQuery({ with: value })} />
      ${others && html`<label class="inline-field">
        <input type="checkbox" checked=${!onlyDifferent} onChange=${(/** @type {any} */ event) => changeQuery({ all: event.target.checked ? "1" : "" })} /> equal values, too</label>`}
      <${CopyButton} text=${JSON.stringify(job.spec.train_config ?? job.spec, null, 2)} label="Copy as JSON" />`}>
    <${LoadError} error=${error} what="Config" />
    <${LoadError} error=${other.error} what=${`Job ${otherId}`} />
    ${others && keys.length === 0 && html`<p class="empty">The configs are equal.</p>`}
    ${!full && !error && html`<p class="empty">Loading the config…</p>`}
    ${full && job.spec.command?.length > 0 && html`<p class="body muted">A program has no train config; these are the fields of the job.</p>`}
    <div class="table-scroll config" tabindex="0" role="region" aria-label="Config table"><table class="plain padded">
      <thead><tr><th>Key</th><th>${others ? `Job ${job.id}` : "Value"}</th>${others && html`<th>Job ${otherId}</th>`}${origins && html`<th>From</th>`}</tr></thead>
      <tbody>${keys.map((key) => html`<tr key=${key} class=${others && !onlyDifferent && mine.get(key) !== others.get(key) ? "different" : ""}>
        <td class="code"><bdi>${cleanLine(key)}</bdi></td><td class="code">${cut(mine.get(key))}</td>${others && html`<td class="code">${cut(others.get(key))}</td>`}
        ${origins && html`<td class="muted"><bdi>${cleanLine(origins[key] ?? "")}</bdi></td>`}
      </tr>`)}</tbody>
    </table></div>
  <//>`;
}
