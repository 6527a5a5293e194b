// Stacks of many ranks, merged into a tree: ranks with the same outer frames share a node.

/**
 * @typedef {object} StackNode
 * @property {string} text
 * @property {any} frame null: the root
 * @property {number} count of ranks
 * @property {[number, number][]} ranks ranges
 * @property {StackNode[]} children
 * @property {number} depth
 * @property {string} path the texts of the frames from the root on
 */

const FRAMES_MAX = 256;

/** @param {any} frame @returns {string} */
export function frameText(frame) {
  if (frame.function) return frame.file ? `${frame.function} (${frame.file.split("/").pop()}:${frame.line})` : frame.function;
  return frame.text || "unknown";
}

/** @param {[number, number][]} ranges */
export function rangesText(ranges) {
  const parts = ranges.slice(0, 12).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  return parts.join(", ") + (ranges.length > 12 ? ", …" : "");
}

/** @param {[number, number][]} a @param {[number, number][]} b @returns {[number, number][]} */
export function joinRanges(a, b) {
  /** @type {[number, number][]} */
  const joined = [];
  for (const [first, last] of [...a, ...b].sort((one, two) => one[0] - two[0])) {
    const end = joined[joined.length - 1];
    if (end && first <= end[1] + 1) end[1] = Math.max(end[1], last);
    else joined.push([first, last]);
  }
  return joined;
}

/** @param {[number, number][]} ranges */
function countOf(ranges) {
  return ranges.reduce((sum, [first, last]) => sum + last - first + 1, 0);
}

/** @param {[number, number][]} ranges @param {number} rank */
export function hasRank(ranges, rank) {
  return ranges.some(([first, last]) => first <= rank && rank <= last);
}

/**
 * @param {any[]} classes of ranks with equal stacks, frames innermost first
 * @returns {StackNode}
 */
export function mergeStacks(classes) {
  /** @type {StackNode} */
  const root = { text: "all ranks", frame: null, count: 0, ranks: [], children: [], depth: 0, path: "/" };
  for (const one of classes) {
    let node = root;
    node.ranks = joinRanges(node.ranks, one.ranks);
    for (const frame of [...one.frames].reverse().slice(0, FRAMES_MAX)) {
      const text = frameText(frame);
      let child = node.children.find((other) => other.text === text);
      if (!child) {
        child = { text, frame, count: 0, ranks: [], children: [], depth: node.depth + 1, path: `${node.path}\n${text}` };
        node.children.push(child);
      }
      child.ranks = joinRanges(child.ranks, one.ranks);
      node = child;
    }
  }
  settle(root);
  return root;
}

/** @param {StackNode} node */
function settle(node) {
  node.count = countOf(node.ranks);
  node.children.forEach(settle);
  node.children.sort((a, b) => a.ranks[0][0] - b.ranks[0][0]);
}

/**
 * Returns the first node in which the ranks take different ways, since chains of common frames
 * distinguish nothing.
 * @param {StackNode} node
 */
export function firstFork(node) {
  while (node.children.length === 1 && node.children[0].count === node.count) node = node.children[0];
  return node;
}


/**
 * Returns the node of a path; null: there is none any more.
 * @param {StackNode} node @param {string} path
 * @returns {StackNode | null}
 */
export function findNode(node, path) {
  if (node.path === path) return node;
  const next = node.children.find((child) => path === child.path || path.startsWith(`${child.path}\n`));
  return next ? findNode(next, path) : null;
}
