// Numbers, durations and times as the page shows them. Times are in the viewer's zone.

const LOCALE = "en-GB";
const wholeNumber = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
const full = new Intl.DateTimeFormat(LOCALE, { dateStyle: "medium", timeStyle: "long", hour12: false });
const DASH = "–";
const DAY_SECONDS = 86400;

/** @param {unknown} value @returns {value is number} */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** @param {number | null | undefined} value */
export function count(value) {
  return isNumber(value) ? wholeNumber.format(value) : DASH;
}

/**
 * Returns at most four significant digits: "2.345", "0.0012", "1.2e-7".
 * @param {number | null | undefined} value
 */
export function figure(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-4 || size >= 1e7) return value.toExponential(2);
  if (size >= 1000) return wholeNumber.format(value);
  return value.toPrecision(4);
}

/** @param {number | null | undefined} value */
export function compact(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  for (const [unit, suffix] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])) {
    if (size >= 0.9995 * unit) return `${(value / unit).toFixed(size >= 99.95 * unit ? 0 : 1)}${suffix}`;
  }
  return size >= 100 || Number.isInteger(value) ? wholeNumber.format(value) : value.toPrecision(3);
}

/** @param {number | null | undefined} ratio @param {number} digits */
export function percent(ratio, digits = 1) {
  return isNumber(ratio) ? `${(ratio * 100).toFixed(digits)}%` : DASH;
}

/**
 * Returns "8 µs", "850 ms", "4.2 s", "3m 05s", "2h 13m" or "5d 4h".
 * @param {number | null | undefined} seconds
 */
export function duration(seconds) {
  if (!isNumber(seconds)) return DASH;
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? "-" : "";
  if (size === 0) return "0 s";
  if (size < 0.0009995) return `${sign}${Math.max(1, Math.round(size * 1e6))} µs`;
  if (size < 0.9995) return `${sign}${(size * 1000).toFixed(size < 0.00995 ? 1 : 0)} ms`;
  if (size < 59.95) return `${sign}${size.toFixed(size < 9.995 ? 2 : 1)} s`;
  const whole = Math.round(size);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < DAY_SECONDS) return `${sign}${Math.floor(whole / 3600)}h ${two(Math.floor(whole / 60) % 60)}m`;
  return `${sign}${Math.floor(whole / DAY_SECONDS)}d ${Math.floor(whole / 3600) % 24}h`;
}

/** Returns the decimals that distinguish marks of this distance. @param {number} distance */
function decimals(distance) {
  return distance > 0 ? Math.min(8, Math.max(0, Math.ceil(-Math.log10(distance) - 1e-9))) : 3;
}

/**
 * Returns a number for an axis: "3.5", "2.5e-4".
 * @param {number} value @param {number} distance of the marks
 */
export function numberTick(value, distance) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e4) return compactTick(value, distance);
  if (size >= 1e-3) return value.toFixed(decimals(distance));
  const exponent = Math.floor(Math.log10(size));
  return `${(value / 10 ** exponent).toFixed(decimals(distance / 10 ** exponent))}e${exponent}`;
}

/** @param {number} value @param {number} distance of the marks */
export function compactTick(value, distance) {
  const size = Math.abs(value);
  const [unit, suffix] = /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]).find(([least]) => size >= least) ?? [1, ""];
  return `${(value / unit).toFixed(decimals(distance / unit))}${suffix}`;
}

/** @param {number} value @param {number} distance of the marks */
export function durationTick(value, distance) {
  if (Math.abs(value) >= 60) return duration(value);
  if (Math.abs(value) >= 1 || value === 0) return `${value.toFixed(decimals(distance))} s`;
  return `${(value * 1000).toFixed(decimals(distance * 1000))} ms`;
}

/** @param {number} value @param {number} distance of the marks */
export function percentTick(value, distance) {
  return `${(value * 100).toFixed(decimals(distance * 100))}%`;
}

const axisMinute = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", hour12: false });
const axisDay = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short" });

/**
 * Returns the label of a time axis, given the distance of its marks in seconds.
 * @param {number} seconds @param {number} distance
 */
export function axisTime(seconds, distance) {
  const at = new Date(seconds * 1000);
  if (distance >= DAY_SECONDS || (at.getHours() === 0 && at.getMinutes() === 0 && distance >= 60)) return axisDay.format(at);
  return (distance < 60 ? clock : axisMinute).format(at);
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (!isNumber(value)) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}

/** @param {number | null | undefined} unixNs */
export function dateTime(unixNs) {
  return unixNs ? full.format(new Date(unixNs / 1e6)) : DASH;
}

/** @param {number | null | undefined} unixNs */
export function time(unixNs) {
  if (!unixNs) return DASH;
  const age = Math.abs(Date.now() - unixNs / 1e6) / 1000;
  return (age < DAY_SECONDS / 2 ? clock : day).format(new Date(unixNs / 1e6));
}

/** @param {number | null | undefined} unixNs */
export function clockMs(unixNs) {
  if (!unixNs) return DASH;
  const ms = String(Math.floor(unixNs / 1e6) % 1000).padStart(3, "0");
  return `${clock.format(new Date(unixNs / 1e6))}.${ms}`;
}

/** @param {number | null | undefined} unixNs @param {number} nowNs the coordinator's time */
export function age(unixNs, nowNs) {
  return unixNs ? duration(Math.max(0, Math.floor((nowNs - unixNs) / 1e9))).replace(/\.\d+ s$/, " s") : DASH;
}
