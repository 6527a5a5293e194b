// Colours of cells. Sequential scales are cividis, which is even in brightness and readable with
// every kind of colour blindness; categories are those of Okabe and Ito.
import { duration, figure, bytes, percent } from "../format.js";

/** @typedef {import("./columns.js").Ranks} Ranks */
/**
 * @typedef {object} Measure
 * @property {string} key
 * @property {string} title
 * @property {string} column
 * @property {(value: number) => string} format
 * @property {"phase" | "life" | "node" | undefined} [categories]
 * @property {boolean} [inverted] low values stand out
 * @property {boolean} [positive] values that are not above zero are unknown
 * @property {(low: number, high: number) => [number, number]} [range] from the extreme values
 */

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8779", "#a69d75", "#c4b56c", "#e4cf5b", "#fee838"];
const STEPS = 64;
const UNKNOWN = "#eceff2";

export const PHASE_COLOURS = {
  INIT: "#56b4e9", RENDEZVOUS: "#0072b2", LOAD: "#cc79a7", COMPILE: "#8c6d31", DATA: "#e69f00", STEP: "#009e73",
  EVAL: "#b8b800", CHECKPOINT_SAVE: "#7570b3", CHECKPOINT_RESTORE: "#a0522d", SHUTDOWN: "#6b7280",
};
export const NODE_STATES = /** @type {[string, string][]} */ ([["connected", "#009e73"], ["silent", "#d55e00"], ["excluded", "#cc79a7"], ["leaving", "#e69f00"]]);
export const LIVES = /** @type {[string, string][]} */ ([["assigned", "#56b4e9"], ["up", "#009e73"], ["ended", "#d55e00"]]);

/** @type {Measure[]} */
export const MEASURES = [
  { key: "phase", title: "phase", column: "phase", categories: "phase", format: String },
  { key: "step", title: "step", column: "step", inverted: true, format: (value) => String(Math.round(value)) },
  { key: "progress", title: "time without progress", column: "progress_age", format: duration, range: (_, high) => [0, Math.max(1, high)] },
  { key: "heartbeat", title: "heartbeat age", column: "node_heartbeat_age", format: duration, range: (_, high) => [0, Math.max(1, high)] },
  { key: "step_time", positive: true, title: "step time", column: "step_seconds", format: duration },
  { key: "straggler", positive: true, title: "straggler score", column: "straggler", format: (value) => `${value.toFixed(2)}×`, range: (low, high) => [Math.min(1, low), Math.max(1.3, high)] },
  { key: "loss", positive: true, title: "loss", column: "loss", format: figure },
  { key: "mfu", positive: true, title: "MFU", column: "mfu", inverted: true, format: (value) => percent(value) },
  { key: "temperature", title: "GPU temperature", column: "temperature", format: (value) => `${value.toFixed(0)} °C` },
  { key: "memory", title: "GPU memory", column: "memory", format: bytes },
  { key: "node", title: "node's state", column: "node_state", categories: "node", format: String },
  { key: "life", title: "process", column: "life", categories: "life", format: String },
];

/** @param {string} hex @returns {number} as ImageData stores it: alpha, blue, green, red */
function packed(hex) {
  const value = parseInt(hex.slice(1), 16);
  return ((0xff << 24) | ((value & 0xff) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

/** @param {number} share from 0 to 1 */
export function cividis(share) {
  const at = Math.min(1, Math.max(0, share)) * (CIVIDIS.length - 1);
  const low = Math.floor(at);
  const high = Math.min(CIVIDIS.length - 1, low + 1);
  const part = (/** @type {number} */ shift) => {
    const a = (parseInt(CIVIDIS[low].slice(1), 16) >> shift) & 0xff;
    const b = (parseInt(CIVIDIS[high].slice(1), 16) >> shift) & 0xff;
    return Math.round(a + (b - a) * (at - low)).toString(16).padStart(2, "0");
  };
  return `#${part(16)}${part(8)}${part(0)}`;
}

/**
 * @typedef {object} Colouring
 * @property {Uint32Array} cells a packed colour for each rank
 * @property {{label: string, colour: string, count: number}[]} entries of a categorical legend
 * @property {[number, number] | null} range of a sequential legend
 * @property {number} unknown ranks without a value
 */

const sequence = Uint32Array.from({ length: STEPS }, (_, i) => packed(cividis(i / (STEPS - 1))));
const unknownPacked = packed(UNKNOWN);

/**
 * @param {Ranks} ranks @param {Measure} measure @param {string[]} phases names of phases
 * @returns {Colouring}
 */
export function colourRanks(ranks, measure, phases) {
  const cells = new Uint32Array(ranks.count).fill(unknownPacked);
  const column = ranks.columns[measure.column];
  if (!column) return { cells, entries: [], range: null, unknown: ranks.count };
  const isNode = measure.column.startsWith("node_");
  if (measure.categories) {
    const ofPhases = () => phases.map((name) => [name, PHASE_COLOURS[/** @type {keyof typeof PHASE_COLOURS} */ (name)] ?? UNKNOWN]);
    const names = measure.categories === "life" ? LIVES : measure.categories === "node" ? NODE_STATES : ofPhases();
    return byCategory(ranks, column, isNode, names, cells);
  }
  const isStep = measure.column === "step";
  const isKnown = (/** @type {number} */ value) => Number.isFinite(value) && !(isStep && value < 0) && !(measure.positive && value <= 0);
  let lowest = Infinity;
  let highest = -Infinity;
  for (let i = 0; i < column.length; ++i) {
    const value = column[i];
    if (!isKnown(value)) continue;
    if (value < lowest) lowest = value;
    if (value > highest) highest = value;
  }
  if (lowest > highest) return { cells, entries: [], range: null, unknown: ranks.count };
  const [low, high] = measure.range ? measure.range(lowest, highest) : [lowest, highest];
  const scale = high > low ? (STEPS - 1) / (high - low) : 0;
  let unknown = 0;
  for (let rank = 0; rank < ranks.count; ++rank) {
    const value = column[isNode ? (rank / ranks.ranksPerNode) | 0 : rank];
    if (!isKnown(value)) {
      ++unknown;
      continue;
    }
    const index = Math.min(STEPS - 1, Math.max(0, ((value - low) * scale) | 0));
    cells[rank] = sequence[measure.inverted && scale > 0 ? STEPS - 1 - index : index];
  }
  return { cells, entries: [], range: [low, high], unknown };
}

/**
 * @param {Ranks} ranks @param {ArrayLike<number>} column @param {boolean} isNode a value per node
 * @param {string[][]} names and colours @param {Uint32Array} cells
 * @returns {Colouring}
 */
function byCategory(ranks, column, isNode, names, cells) {
  const counts = new Array(names.length).fill(0);
  const colours = names.map(([, colour]) => packed(colour));
  let unknown = 0;
  for (let rank = 0; rank < ranks.count; ++rank) {
    const value = column[isNode ? (rank / ranks.ranksPerNode) | 0 : rank];
    if (value < names.length) {
      cells[rank] = colours[value];
      ++counts[value];
    } else {
      ++unknown;
    }
  }
  const entries = names.map(([label, colour], i) => ({ label, colour, count: counts[i] })).filter((entry) => entry.count > 0);
  return { cells, entries, range: null, unknown };
}
