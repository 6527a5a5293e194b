// The position of each rank's cell. Units are cells; gaps separate groups of the outer axes.

/** @typedef {{name: string, size: number, nodes: number, local: number}} Axis */
/**
 * @typedef {object} Layout
 * @property {Int32Array} x
 * @property {Int32Array} y
 * @property {number} width
 * @property {number} height
 * @property {Int32Array} owner the rank at y * width + x; -1: none
 */

const GAP = 1;
const SWITCH_GAP = 3;
// A picture this much slimmer or flatter than the required shape is folded.
const FOLD_FROM = 4;

/**
 * Returns the rank's coordinates, one for each axis, outermost first.
 * @param {number} rank @param {Axis[]} axes @param {number} ranksPerNode
 */
export function coordinates(rank, axes, ranksPerNode) {
  let node = Math.floor(rank / ranksPerNode);
  let local = rank % ranksPerNode;
  const at = new Array(axes.length).fill(0);
  for (let a = axes.length - 1; a >= 0; --a) {
    const axis = axes[a];
    at[a] = (node % axis.nodes) * axis.local + (local % axis.local);
    node = Math.floor(node / axis.nodes);
    local = Math.floor(local / axis.local);
  }
  return at;
}

/**
 * Returns the offset of each coordinate along one direction, given the sizes of the axes that run
 * in it, outermost first. Each group of the next inner axis ends with a gap.
 * @param {number[]} sizes
 * @returns {{strides: number[], extent: number}}
 */
function stridesOf(sizes) {
  const strides = new Array(sizes.length).fill(0);
  let extent = 1;
  for (let i = sizes.length - 1; i >= 0; --i) {
    const isInnermost = i === sizes.length - 1;
    const gap = isInnermost ? 0 : GAP;
    strides[i] = extent + gap;
    extent = extent * sizes[i] + gap * (sizes[i] - 1);
  }
  return { strides, extent };
}

/** @param {Int32Array} x @param {Int32Array} y @param {number} width @param {number} height @returns {Layout} */
function finished(x, y, width, height) {
  const owner = new Int32Array(width * height).fill(-1);
  for (let rank = 0; rank < x.length; ++rank) owner[y[rank] * width + x[rank]] = rank;
  return { x, y, width, height, owner };
}

/**
 * Cuts a slim picture into bands and puts them side by side, or a flat one below each other.
 * @param {Int32Array} x @param {Int32Array} y @param {number} width @param {number} height
 * @param {number} unit cells along the cut that stay together
 * @param {number} aspect
 */
function folded(x, y, width, height, unit, aspect) {
  const isSlim = (width / height) * FOLD_FROM < aspect;
  const isFlat = width / height > aspect * FOLD_FROM;
  if (!isSlim && !isFlat) return finished(x, y, width, height);
  const [along, across] = isSlim ? [y, x] : [x, y];
  const [length, breadth] = isSlim ? [height, width] : [width, height];
  const bands = Math.max(1, Math.round(Math.sqrt(((isSlim ? aspect : 1 / aspect) * length) / breadth)));
  const bandLength = Math.ceil(length / bands / unit) * unit;
  for (let rank = 0; rank < along.length; ++rank) {
    const band = Math.floor(along[rank] / bandLength);
    along[rank] -= band * bandLength;
    across[rank] += band * (breadth + SWITCH_GAP);
  }
  const used = Math.ceil(length / bandLength);
  const breadthOfAll = used * (breadth + SWITCH_GAP) - SWITCH_GAP;
  return isSlim ? finished(x, y, breadthOfAll, bandLength) : finished(x, y, bandLength, breadthOfAll);
}

/**
 * Lays ranks out by axes: those in `down` choose the row, the others the column.
 * @param {number} ranks @param {number} ranksPerNode @param {Axis[]} axes @param {string[]} down
 * @param {number} aspect the required width divided by the height
 */
export function layOutByAxes(ranks, ranksPerNode, axes, down, aspect) {
  const rows = axes.map((axis, index) => ({ axis, index })).filter((one) => down.includes(one.axis.name));
  const columns = axes.map((axis, index) => ({ axis, index })).filter((one) => !down.includes(one.axis.name));
  const vertical = stridesOf(rows.map((one) => one.axis.size));
  const horizontal = stridesOf(columns.map((one) => one.axis.size));
  const x = new Int32Array(ranks);
  const y = new Int32Array(ranks);
  for (let rank = 0; rank < ranks; ++rank) {
    const at = coordinates(rank, axes, ranksPerNode);
    rows.forEach((one, i) => { y[rank] += at[one.index] * vertical.strides[i]; });
    columns.forEach((one, i) => { x[rank] += at[one.index] * horizontal.strides[i]; });
  }
  const isSlim = horizontal.extent < vertical.extent;
  return folded(x, y, horizontal.extent, vertical.extent, (isSlim ? vertical : horizontal).strides[0] ?? 1, aspect);
}

/**
 * Lays ranks out by node: the ranks of a node are a block, and so are the nodes below one switch.
 * @param {number} ranks @param {number} ranksPerNode @param {string[]} switches of each node
 * @param {number} aspect the required width divided by the height
 */
export function layOutByNode(ranks, ranksPerNode, switches, aspect) {
  const nodes = Math.ceil(ranks / ranksPerNode);
  const blockWidth = Math.ceil(Math.sqrt(ranksPerNode / 2)) * (ranksPerNode > 2 ? 2 : 1);
  const blockHeight = Math.ceil(ranksPerNode / blockWidth);
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  for (let node = 0; node < nodes; ++node) {
    const name = switches[node] ?? "";
    const group = groups.get(name);
    if (group) group.push(node);
    else groups.set(name, [node]);
  }
  // Nodes of a group form a square, unless there is one group only.
  const columnsOf = (/** @type {number} */ count) => {
    const shape = groups.size === 1 ? aspect : 1;
    const ideal = Math.min(count, Math.max(1, Math.round(Math.sqrt((count * shape * (blockHeight + GAP)) / (blockWidth + GAP)))));
    return [ideal, ideal + 1, ideal - 1].find((columns) => columns > 0 && count % columns === 0) ?? ideal;
  };
  const usual = columnsOf(Math.ceil(nodes / groups.size));
  const usualWidth = usual * (blockWidth + GAP) + SWITCH_GAP;
  const usualHeight = Math.ceil(nodes / groups.size / usual) * (blockHeight + GAP) + SWITCH_GAP;
  const widthMax = bestColumns(groups.size, usualWidth / usualHeight, aspect) * usualWidth;
  const x = new Int32Array(ranks);
  const y = new Int32Array(ranks);
  let left = 0;
  let top = 0;
  let rowHeight = 0;
  let width = 0;
  for (const name of [...groups.keys()].sort(compareNames)) {
    const group = /** @type {number[]} */ (groups.get(name));
    const columns = columnsOf(group.length);
    const groupWidth = columns * (blockWidth + GAP) - GAP;
    const groupHeight = Math.ceil(group.length / columns) * (blockHeight + GAP) - GAP;
    if (left > 0 && left + groupWidth > widthMax) {
      left = 0;
      top += rowHeight + SWITCH_GAP;
      rowHeight = 0;
    }
    group.forEach((node, position) => {
      const nodeLeft = left + (position % columns) * (blockWidth + GAP);
      const nodeTop = top + Math.floor(position / columns) * (blockHeight + GAP);
      for (let local = 0; local < ranksPerNode && node * ranksPerNode + local < ranks; ++local) {
        x[node * ranksPerNode + local] = nodeLeft + (local % blockWidth);
        y[node * ranksPerNode + local] = nodeTop + Math.floor(local / blockWidth);
      }
    });
    width = Math.max(width, left + groupWidth);
    rowHeight = Math.max(rowHeight, groupHeight);
    left += groupWidth + SWITCH_GAP;
  }
  return finished(x, y, width, top + rowHeight);
}

/**
 * Returns the number of columns with which equal boxes have about the required shape.
 * @param {number} boxes @param {number} boxAspect @param {number} aspect
 */
function bestColumns(boxes, boxAspect, aspect) {
  let best = 1;
  let bestError = Infinity;
  for (let columns = 1; columns <= boxes; ++columns) {
    const error = Math.abs(Math.log((columns * boxAspect) / Math.ceil(boxes / columns) / aspect));
    if (error < bestError) {
      bestError = error;
      best = columns;
    }
  }
  return best;
}

const collator = new Intl.Collator("en", { numeric: true });

/** @param {string} a @param {string} b */
function compareNames(a, b) {
  return collator.compare(a, b);
}

/**
 * Lays ranks out in order, in rows of powers of two.
 * @param {number} ranks @param {number} aspect
 */
export function layOutInOrder(ranks, aspect) {
  const width = Math.min(ranks, 2 ** Math.round(Math.log2(Math.max(1, Math.sqrt(ranks * aspect)))));
  const x = new Int32Array(ranks);
  const y = new Int32Array(ranks);
  for (let rank = 0; rank < ranks; ++rank) {
    x[rank] = rank % width;
    y[rank] = Math.floor(rank / width);
  }
  return finished(x, y, width, Math.ceil(ranks / width));
}

/**
 * Chooses the axes that run downwards, so that the picture has about the required shape. The outer
 * axes are preferred.
 * @param {Axis[]} axes @param {number} aspect
 */
export function axesDown(axes, aspect) {
  let best = /** @type {string[]} */ ([]);
  let bestError = Infinity;
  for (let split = 0; split <= axes.length; ++split) {
    const height = axes.slice(0, split).reduce((size, axis) => size * axis.size, 1);
    const width = axes.slice(split).reduce((size, axis) => size * axis.size, 1);
    const error = Math.abs(Math.log(width / height / aspect));
    if (error < bestError) {
      bestError = error;
      best = axes.slice(0, split).map((axis) => axis.name);
    }
  }
  return best;
}
