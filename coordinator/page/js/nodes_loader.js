// All nodes in pages, so that parsing thousands of them never blocks the page for long.
import { getJson } from "./api.js";

const PAGE = 1000;
const PAGES_MAX = 100;

/**
 * Returns the list of nodes with a text to search in and a state to show.
 * @param {AbortSignal} signal
 * @returns {Promise<any[]>}
 */
export async function loadNodes(signal) {
  const nodes = [];
  let after = "";
  for (let page = 0; page < PAGES_MAX; ++page) {
    const list = await getJson(`nodes?limit=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ""}`, signal);
    for (const node of list.nodes) nodes.push(node);
    if (!list.more || list.nodes.length === 0) break;
    after = list.nodes[list.nodes.length - 1].name;
    await new Promise((resolve) => setTimeout(resolve));
  }
  return nodes;
}

/** @typedef {"excluded" | "away" | "leaving" | "check due" | "failed check" | "busy" | "idle"} NodeState */

/** @param {any} node @returns {NodeState} */
export function nodeState(node) {
  if (node.exclusion) return "excluded";
  if (!node.connected) return "away";
  if (node.leaving) return "leaving";
  if (node.check_due) return "check due";
  if (node.last_check && !node.last_check.passed) return "failed check";
  return node.slots_used > 0 ? "busy" : "idle";
}

/** @type {Record<NodeState, import("./components/badge.js").Tone>} */
export const NODE_TONES = { excluded: "bad", away: "warn", leaving: "warn", "check due": "busy", "failed check": "bad", busy: "good", idle: "quiet" };

/** Returns the reason for a node's state in one sentence, or "". @param {any} node */
export function nodeReason(node) {
  if (node.exclusion) return `${node.exclusion.cause}: ${node.exclusion.reason}`;
  if (node.last_check && !node.last_check.passed) return node.last_check.sentence;
  return node.gpus_used === 0 && (node.gpus?.length ?? node.gpu_count ?? 0) === 0 ? node.no_gpus_because : "";
}

/** @param {any} node */
export function gpuCount(node) {
  return node.gpu_count ?? node.gpus?.length ?? 0;
}
