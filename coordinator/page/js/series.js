// The points of a job's curves as columns: merged, bounded and smoothed.

export const COLUMNS = ["unix_ns", "attempt", "step", "loss", "grad_norm", "step_seconds", "tokens_per_second", "mfu", "learning_rate"];
const POINTS_MAX = 8192;

/** @typedef {Record<string, (number | null)[]>} Columns */

/** @returns {Columns} */
export function emptyColumns() {
  return Object.fromEntries(COLUMNS.map((name) => [name, []]));
}

/** @param {Columns} columns */
export function lastTime(columns) {
  return columns.unix_ns[columns.unix_ns.length - 1] ?? 0;
}

/**
 * Merges points into the columns by time; a time that is present stays as it is. Live points may
 * arrive before earlier ones. Drops every second point of the older half while there are too many.
 * @param {Columns} columns
 * @param {Columns} more
 */
export function merge(columns, more) {
  const known = new Set(columns.unix_ns);
  const fresh = [...more.unix_ns.keys()].filter((i) => !known.has(more.unix_ns[i]));
  if (fresh.length === 0) return;
  const isLater = Number(more.unix_ns[fresh[0]]) > Number(lastTime(columns));
  for (const i of fresh) for (const name of COLUMNS) columns[name].push(more[name]?.[i] ?? null);
  if (!isLater) {
    const order = [...columns.unix_ns.keys()].sort((a, b) => Number(columns.unix_ns[a]) - Number(columns.unix_ns[b]));
    for (const name of COLUMNS) columns[name] = order.map((i) => columns[name][i]);
  }
  while (columns.unix_ns.length > POINTS_MAX) {
    const half = columns.unix_ns.length / 2;
    for (const name of COLUMNS) columns[name] = columns[name].filter((_, i) => i >= half || i % 2 === 0);
  }
}

/** @param {any[]} points */
export function columnsOf(points) {
  return Object.fromEntries(COLUMNS.map((name) => [name, points.map((point) => point[name] ?? null)]));
}

/**
 * Returns the exponential moving average, corrected for its start. It begins again after a gap.
 * @param {(number | null)[]} values
 * @param {number} weight of the past, from 0 to below 1
 */
export function smoothed(values, weight) {
  if (weight <= 0) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (value === null) {
      sum = 0;
      total = 0;
      return null;
    }
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}

/**
 * Returns times in seconds, and the values with a gap before each attempt, so that no line joins
 * two attempts.
 * @param {Columns} columns
 * @param {string} name
 * @returns {[number[], (number | null)[]]}
 */
export function curve(columns, name) {
  /** @type {number[]} */
  const times = [];
  /** @type {(number | null)[]} */
  const values = [];
  for (let i = 0; i < columns.unix_ns.length; ++i) {
    const seconds = Number(columns.unix_ns[i]) / 1e9;
    if (i > 0 && columns.attempt[i] !== columns.attempt[i - 1]) {
      times.push((times[times.length - 1] + seconds) / 2);
      values.push(null);
    }
    times.push(seconds);
    values.push(columns[name][i]);
  }
  return [times, values];
}
