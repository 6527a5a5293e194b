// All nodes with their checks, and the details of one of them.
import { html, useEffect, useMemo, useState } from "../html.js";
import { ApiError, getJson, hasRole, nowNs, postJson, useLoaded } from "../api.js";
import { bytes, count, dateTime, duration, isNumber, time } from "../format.js";
import { changeQuery, visit } from "../router.js";
import { cleanLine, matchesWords, shorten, wordsOf } from "../text.js";
import { gpuCount, loadNodes, nodeReason, nodeState, NODE_TONES } from "../nodes_loader.js";
import { Badge } from "../components/badge.js";
import { DataTable } from "../components/table.js";
import { useConfirm } from "../components/dialog.js";
import { excludeRequest } from "../components/exclude_node.js";
import { Age, LoadError, Panel, Text } from "../components/parts.js";

const EVERY_MS = 10000;
// Many nodes are megabytes of JSON, which cost the coordinator some milliseconds per thousand.
const MANY_NODES = 2000;
const MANY_EVERY_MS = 120000;
const NODE_EVERY_MS = 3000;

/** @type {import("../components/table.js").Column[]} */
const COLUMNS = [
  { key: "name", title: "Node", width: 150, grow: 1, rank: 0, value: (node) => cleanLine(node.name),
    cell: (node) => html`<a href=${`#/nodes/${encodeURIComponent(node.name)}`}><bdi>${cleanLine(node.name)}</bdi></a>` },
  { key: "state", title: "State", width: 124, rank: 0, value: nodeState,
    cell: (node) => html`<${Badge} tone=${NODE_TONES[nodeState(node)]}>${nodeState(node)}<//>` },
  { key: "host", title: "Host", width: 130, grow: 1, rank: 4, value: (node) => cleanLine(node.host), cell: (node) => html`<bdi>${cleanLine(node.host)}</bdi>` },
  { key: "slots", title: "Slots used", number: true, width: 96, rank: 2, value: (node) => node.slots_used,
    cell: (node) => html`${node.slots_used}<span class="muted"> / ${node.slots}</span>` },
  { key: "gpus", title: "GPUs used", number: true, width: 96, rank: 3, value: (node) => (gpuCount(node) > 0 ? node.gpus_used : null),
    cell: (node) => (gpuCount(node) > 0 ? html`${node.gpus_used}<span class="muted"> / ${gpuCount(node)}</span>` : "–") },
  { key: "heartbeat", title: "Heartbeat", number: true, width: 92, rank: 2, value: (node) => node.heartbeat_age_seconds,
    cell: (node) => duration(node.heartbeat_age_seconds) },
  { key: "check", title: "Last check", width: 150, rank: 3, value: (node) => node.last_check?.unix_ns,
    cell: (node) => (node.last_check ? html`${node.last_check.passed ? "passed" : "failed"} <span class="muted"><${Age} unixNs=${node.last_check.unix_ns} short=${true} /></span>` : html`<span class="muted">none</span>`) },
  { key: "version", title: "Version", width: 84, rank: 5, value: (node) => cleanLine(node.version) },
  { key: "reason", title: "Reason", width: 160, grow: 2, rank: 3, value: nodeReason, tip: (node) => shorten(nodeReason(node), 500),
    cell: (node) => html`<bdi class="muted">${cleanLine(nodeReason(node))}</bdi>` },
];

/** @param {string} name @param {() => void} after */
function admitRequest(name, after) {
  return {
    title: `Admit node ${shorten(name, 60)}`,
    text: "All exclusions and pending checks of the node are removed, and it gets ranks again.",
    action: "Admit",
    run: async () => {
      await postJson(`nodes/${encodeURIComponent(name)}/admit`, {});
      after();
      return `Node ${shorten(name, 60)} is admitted.`;
    },
  };
}

/** @param {{node: any}} props */
function NodeFacts({ node }) {
  const gpus = node.gpus ?? [];
  return html`<dl class="facts">
    <dt>State</dt><dd><${Badge} tone=${NODE_TONES[nodeState(node)]}>${nodeState(node)}<//></dd>
    <dt>Host</dt><dd><${Text}>${node.host}<//></dd>
    <dt>Slots</dt><dd>${count(node.slots_used)} of ${count(node.slots)} used${node.slots_held > 0 ? `, ${count(node.slots_held)} of them reserved` : ""}</dd>
    <dt>Heartbeat</dt><dd>${isNumber(node.heartbeat_age_seconds) ? `${duration(node.heartbeat_age_seconds)} ago` : "–"}</dd>
    <dt>Version</dt><dd>${cleanLine(node.version) || "–"}</dd>
    ${node.exclusion && html`<dt>Exclusion</dt><dd><${Text}>
      ${node.exclusion.cause}: ${node.exclusion.reason}<//>, since ${dateTime(node.exclusion.since_unix_ns)}, ${node.exclusion.until_unix_ns ? `until ${dateTime(node.exclusion.until_unix_ns)}` : "until it is admitted"}</dd>`}
    <dt>Last check</dt><dd>${node.last_check ? html`${node.last_check.passed ? "passed" : "failed"} on ${dateTime(node.last_check.unix_ns)} in ${duration(node.last_check.seconds)} <${Text}>${node.last_check.sentence}<//>` : "none since the node's record began"}</dd>
    ${node.last_check?.details && html`<dt>Details</dt><dd><${Text}>${node.last_check.details}<//></dd>`}
    <dt>GPUs</dt><dd>${gpus.length > 0 ? html`<ul>${gpus.map((/** @type {any} */ gpu) => html`<li key=${gpu.index}>${gpu.index}: <${Text}>
      ${gpu.name}<//>, ${bytes(gpu.memory_bytes)}, NUMA node ${gpu.numa_node}, <code>${cleanLine(gpu.uuid)}</code></li>`)}</ul>` : html`<${Text}>
      ${node.no_gpus_because || "none"}<//>`}</dd>
  </dl>`;
}

/** @param {{name: string, onChange: () => void}} props */
function NodePanel({ name, onChange }) {
  const loaded = useLoaded(`node ${name}`, (signal) => getJson(`nodes/${encodeURIComponent(name)}`, signal), NODE_EVERY_MS);
  const { confirm, elements } = useConfirm();
  const after = () => {
    loaded.reload();
    onChange();
  };
  const mayAct = hasRole("admin");
  const why = mayAct ? undefined : "This needs the role admin";
  return html`<${Panel} title=${`Node ${shorten(name, 80)}`} aside=${html`
      <button type="button" class="button danger" disabled=${!mayAct} title=${why} onClick=${() => confirm(excludeRequest(name, after))}>Exclude…</button>
      <button type="button" class="button" disabled=${!mayAct || !loaded.value?.exclusion} title=${why} onClick=${() => confirm(admitRequest(name, after))}>Admit…</button>
      <button type="button" class="button" onClick=${() => visit("#/nodes")}>Close</button>`}>
    <div class="body">
      ${loaded.error instanceof ApiError && loaded.error.status === 404 ? html`<p class="notice warn">There is no node ${shorten(name, 80)}.</p>` : html`<${LoadError} error=${loaded.error} what="Node" />`}
      ${loaded.value && html`<${NodeFacts} node=${loaded.value} />`}
    </div>
    ${elements}
  <//>`;
}

/** @param {{query: URLSearchParams, name: string}} props */
export function NodesPage({ query, name }) {
  const [isLarge, setLarge] = useState(false);
  const loaded = useLoaded("nodes", loadNodes, isLarge ? MANY_EVERY_MS : EVERY_MS);
  const hasMany = (loaded.value?.length ?? 0) > MANY_NODES;
  useEffect(() => setLarge(hasMany), [hasMany]);
  const loadedNs = useMemo(nowNs, [loaded.value]);
  const search = query.get("q") ?? "";
  const state = query.get("state") ?? "";
  const nodes = loaded.value ?? [];
  const counts = useMemo(() => {
    const found = new Map();
    for (const node of nodes) found.set(nodeState(node), (found.get(nodeState(node)) ?? 0) + 1);
    return found;
  }, [nodes]);
  const rows = useMemo(() => {
    const words = wordsOf(search);
    return nodes.filter((node) => (!state || nodeState(node) === state) && (words.length === 0 || matchesWords(`${node.name} ${node.host} ${nodeReason(node)}`.toLowerCase(), words)));
  }, [nodes, search, state]);
  return html`<h1>Nodes</h1>
    <${LoadError} error=${loaded.error} what="Nodes" />
    ${name && html`<${NodePanel} key=${name} name=${name} onChange=${loaded.reload} />`}
    <${Panel} title=${loaded.value ? `${count(rows.length)} nodes${hasMany ? ` at ${time(loadedNs)}` : ""}` : "Nodes"} aside=${html`
      <div class="chips" role="group" aria-label="Filter by state">
        <button type="button" class="chip" aria-pressed=${state === "" ? "true" : "false"} onClick=${() => changeQuery({ state: "" })}>all <span class="count">${count(nodes.length)}</span></button>
        ${Object.keys(NODE_TONES).filter((one) => counts.get(one)).map((one) => html`<button type="button" class="chip" key=${one} aria-pressed=${state === one ? "true" : "false"}
          onClick=${() => changeQuery({ state: one })}>${one} <span class="count">${count(counts.get(one))}</span></button>`)}
      </div>
      <input type="search" aria-label="Search nodes by name, host or reason" placeholder="Search name, host, reason" value=${search}
        onInput=${(/** @type {any} */ event) => changeQuery({ q: event.target.value })} />`}>
      <${DataTable} label="Nodes" columns=${COLUMNS} rows=${rows} keyOf=${(/** @type {any} */ node) => node.name} selected=${name} sort=${query.get("sort") ?? "name"}
        onSort=${(/** @type {string} */ sort) => changeQuery({ sort })} height=${name ? "50vh" : "76vh"} empty=${!loaded.value ? "Loading…" : nodes.length === 0 ? "No worker has registered." : undefined} />
    <//>`;
}

