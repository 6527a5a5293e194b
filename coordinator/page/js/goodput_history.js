// Goodput over time from cumulative sums: intervals of the shown span, each with the shares of its
// productive and lost time.

/**
 * @typedef {{from: number, to: number, wall: number, productive: number, losses: Record<string, number>}} Interval
 * Times in seconds.
 */

/**
 * Returns at most `intervalsMax` intervals of equal numbers of points. A restart of the coordinator
 * begins the sums again, so negative differences count as nothing.
 * @param {any} history the answer of GET /api/v1/fleet/history
 * @param {number} intervalsMax
 * @returns {Interval[]}
 */
export function intervalsOf(history, intervalsMax) {
  const { columns, losses } = history;
  const points = columns.unix_ns.length;
  const stride = Math.max(1, Math.ceil((points - 1) / intervalsMax));
  /** @type {Interval[]} */
  const intervals = [];
  const since = (/** @type {number[]} */ values, /** @type {number} */ a, /** @type {number} */ b) => {
    let sum = 0;
    for (let i = a; i < b; ++i) sum += Math.max(0, (values[i + 1] ?? 0) - (values[i] ?? 0));
    return sum;
  };
  for (let a = 0; a + 1 < points; a += stride) {
    const b = Math.min(points - 1, a + stride);
    /** @type {Record<string, number>} */
    const lost = {};
    for (const [cause, values] of Object.entries(losses)) {
      const seconds = since(/** @type {number[]} */ (values), a, b);
      if (seconds > 0) lost[cause] = seconds;
    }
    intervals.push({ from: columns.unix_ns[a] / 1e9, to: columns.unix_ns[b] / 1e9, wall: since(columns.wall_seconds, a, b), productive: since(columns.productive_seconds, a, b), losses: lost });
  }
  return intervals;
}

/**
 * Returns the causes with their lost seconds over all intervals, the largest first.
 * @param {Interval[]} intervals
 * @returns {[string, number][]}
 */
export function causesOf(intervals) {
  /** @type {Map<string, number>} */
  const sums = new Map();
  for (const interval of intervals) {
    for (const [cause, seconds] of Object.entries(interval.losses)) sums.set(cause, (sums.get(cause) ?? 0) + seconds);
  }
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/**
 * Returns the intervals with the smaller causes summed as "other".
 * @param {Interval[]} intervals @param {number} causesMax
 * @returns {Interval[]}
 */
export function foldCauses(intervals, causesMax) {
  const kept = new Set(causesOf(intervals).slice(0, causesMax).map(([cause]) => cause));
  return intervals.map((interval) => {
    /** @type {Record<string, number>} */
    const losses = {};
    for (const [cause, seconds] of Object.entries(interval.losses)) {
      const name = kept.has(cause) ? cause : "other";
      losses[name] = (losses[name] ?? 0) + seconds;
    }
    return { ...interval, losses };
  });
}
