// The position of each rank's cell. Units are cells; groups of the outer axes are separated by gaps.

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
 * Lays ranks out by axes: those in `down` choose the row, the others the column.
 * @param {number} ranks @param {number} ranksPerNode @param {Axis[]} axes @param {string[]} down
 */
export function layOutByAxes(ranks, ranksPerNode, axes, down) {
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
  return finished(x, y, horizontal.extent, vertical.extent);
}

/**
 * Lays ranks out by node: the ranks of a node are a block, and nodes below one switch stay together.
 * @param {number} ranks @param {number} ranksPerNode @param {string[]} switches of each node
 * @param {number} aspect the wanted width divided by the height
 */
export function layOutByNode(ranks, ranksPerNode, switches, aspect) {
  const nodes = Math.ceil(ranks / ranksPerNode);
  const blockWidth = Math.ceil(Math.sqrt(ranksPerNode / 2)) * (ranksPerNode > 2 ? 2 : 1);
  const blockHeight = Math.ceil(ranksPerNode / blockWidth);
  const perRow = Math.max(1, Math.round(Math.sqrt((nodes * aspect * (blockHeight + GAP)) / (blockWidth + GAP))));
  const order = [...Array(nodes).keys()].sort((a, b) => {
    const one = switches[a] ?? "";
    const other = switches[b] ?? "";
    return one === other ? a - b : one < other ? -1 : 1;
  });
  const x = new Int32Array(ranks);
  const y = new Int32Array(ranks);
  let column = 0;
  let top = 0;
  let width = 0;
  order.forEach((node, position) => {
    const isNewSwitch = position > 0 && (switches[node] ?? "") !== (switches[order[position - 1]] ?? "");
    if (column === perRow || isNewSwitch) {
      column = 0;
      top += blockHeight + GAP + (isNewSwitch ? GAP : 0);
    }
    const left = column * (blockWidth + GAP);
    for (let local = 0; local < ranksPerNode && node * ranksPerNode + local < ranks; ++local) {
      x[node * ranksPerNode + local] = left + (local % blockWidth);
      y[node * ranksPerNode + local] = top + Math.floor(local / blockWidth);
    }
    width = Math.max(width, left + blockWidth);
    ++column;
  });
  return finished(x, y, width, top + blockHeight);
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
 * Chooses the axes that run downwards, so that the picture has about the wanted shape. The outer
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
