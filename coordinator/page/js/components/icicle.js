// Merged stacks as an icicle picture: the outermost frame is on top. Wider frames have more ranks,
// but no frame is narrower than can be read.
import { html, useMemo, useState } from "../html.js";
import { findNode, firstFork, hasRank, mergeStacks, rangesText } from "./stack_tree.js";
import { clean } from "../text.js";
import { count } from "../format.js";

// A single rank among thousands is what one searches for, so its column stays wide enough to read.
const SHARE_MIN = 0.16;
const DEPTH_MAX = 200;

/** @typedef {import("./stack_tree.js").StackNode} StackNode */

/** @param {{node: StackNode, share: number, suspect: number, rankCount: number, chosen: StackNode | null, choose: (node: StackNode) => void, left: number}} props */
function Frame({ node, share, suspect, rankCount, chosen, choose, left }) {
  const isSuspect = suspect >= 0 && hasRank(node.ranks, suspect) && node.count <= 8 && node.count < rankCount;
  const total = node.children.reduce((sum, child) => sum + child.count, 0) || 1;
  return html`<li style=${{ flexGrow: share }}>
    <button type="button" class=${`frame${isSuspect ? " suspect" : ""}`} aria-pressed=${chosen === node ? "true" : "false"}
        title=${clean(node.text)} onClick=${() => choose(node)}>
      <span class="code">${clean(node.text)}</span><span class="ranks">${count(node.count)}</span>
    </button>
    ${left > 0 && node.children.length > 0 && html`<ul>${node.children.map((child) => html`<${Frame} key=${child.text}
      node=${child} share=${Math.max(child.count / total, SHARE_MIN)} suspect=${suspect} rankCount=${rankCount} chosen=${chosen} choose=${choose} left=${left - 1} />`)}</ul>`}
  </li>`;
}

/** @param {StackNode} node */
function place(node) {
  const frame = node.frame;
  if (!frame) return "";
  const parts = [frame.file && `${frame.file}:${frame.line}`, frame.module].filter(Boolean);
  return parts.join(" in ");
}

/**
 * @param {object} props
 * @param {any[]} props.classes
 * @param {number} [props.suspect] the rank to mark; -1: none
 * @param {number} [props.dropped]
 */
export function Icicle({ classes, suspect = -1, dropped = 0 }) {
  const threads = useMemo(() => [...new Set(classes.map((one) => one.thread))], [classes]);
  const [thread, setThread] = useState("");
  const [whole, setWhole] = useState(false);
  const [path, setPath] = useState("");
  const current = threads.includes(thread) ? thread : threads.includes("main") ? "main" : threads[0];
  const root = useMemo(() => mergeStacks(classes.filter((one) => one.thread === current)), [classes, current]);
  const chosen = useMemo(() => (path ? findNode(root, path) : null), [root, path]);
  const choose = (/** @type {StackNode} */ node) => setPath(node.path);
  if (classes.length === 0) return html`<p class="empty">No stack was read.</p>`;
  const fork = firstFork(root);
  const top = whole ? root : fork;
  return html`<div class="icicle">
    <div class="row">
      ${threads.length > 1 && html`<label class="inline-field">Thread
        <select value=${current} onChange=${(/** @type {any} */ event) => setThread(event.target.value)}>
          ${threads.map((one) => html`<option key=${one} value=${one}>${clean(one) || "main"}</option>`)}
        </select></label>`}
      ${fork.depth > 0 && html`<button type="button" class="button small" aria-pressed=${whole ? "true" : "false"} onClick=${() => setWhole(!whole)}>
        ${whole ? "Hide" : "Show"} the ${fork.depth} frames that all ranks share</button>`}
      ${dropped > 0 && html`<span class="muted">${count(dropped)} stacks exceeded the limits and are missing.</span>`}
    </div>
    <div class="frames" tabindex="0" role="region" aria-label="Merged stacks, outermost frame on top"><ul>
      <${Frame} node=${top} share=${1} suspect=${suspect} rankCount=${root.count} chosen=${chosen} choose=${choose} left=${DEPTH_MAX} />
    </ul></div>
    <div class="chosen" role="status">${chosen
      ? html`<p class="code">${clean(chosen.text)}</p><p>${chosen.count === 1 ? "rank" : `${count(chosen.count)} ranks:`} ${rangesText(chosen.ranks)}</p><p class="muted">${clean(place(chosen))}</p>`
      : html`<p class="muted">Choose a frame to see its ranks and its place in the source.</p>`}</div>
  </div>`;
}
