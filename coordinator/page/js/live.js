// The state of the fleet and of one job, kept current by the coordinator's server-sent events.
import { useEffect, useState } from "./html.js";
import { loadSession } from "./api.js";
import { whileVisible } from "./visibility.js";

const RECONNECT_MS_MIN = 1000;
const RECONNECT_MS_MAX = 15000;
const POINTS_MAX = 4096;
// A connection of a computer that slept, or behind a proxy, may be dead without an error.
const SILENCE_MS_MAX = 60000;
const WATCH_EVERY_MS = 10000;

/** @typedef {"connecting" | "live" | "away"} Connection */

export const live = {
  connection: /** @type {Connection} */ ("connecting"),
  fleet: /** @type {any} */ (null),
  /** @type {Map<number, any>} */
  jobs: new Map(),
  /** @type {any[]} the values of `jobs`, newest first; a new array after each change */
  rows: [],
  more: false,
  /** @type {any} the job of the page, or null before its first event */
  job: null,
  gone: false,
  /** @type {any[]} points of the job's curves since the connection */
  points: [],
  /** @type {number} grows with each connection, after which points may be missing */
  connections: 0,
};

/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {EventSource | null} */
let source = null;
/** @type {(() => void) | null} ends the events */
let forget = null;
let watchedJob = 0;
let reconnectMs = RECONNECT_MS_MIN;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let isAnnounced = false;
let lastEventMs = 0;

// Many events within a frame cause one rendering.
function announce() {
  if (isAnnounced) return;
  isAnnounced = true;
  const run = () => {
    isAnnounced = false;
    for (const listener of [...listeners]) listener();
  };
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(run);
}

function renewRows() {
  live.rows = [...live.jobs.values()].sort((a, b) => b.id - a.id);
}

/** @param {any} data */
export function applySnapshot(data) {
  live.fleet = data.fleet;
  live.jobs = new Map(data.jobs.map((/** @type {any} */ job) => [job.id, job]));
  live.more = data.more;
  renewRows();
}

/** @param {any} data */
export function applyDelta(data) {
  if (data.fleet) live.fleet = { ...live.fleet, ...data.fleet };
  for (const change of data.jobs ?? []) live.jobs.set(change.id, { ...live.jobs.get(change.id), ...change });
  for (const id of data.removed ?? []) live.jobs.delete(id);
  if (data.jobs || data.removed) renewRows();
}

/** @type {Record<string, (data: any) => void>} */
const HANDLERS = {
  snapshot: applySnapshot,
  delta: applyDelta,
  job: (data) => {
    if (data.id !== watchedJob) return;
    live.job = data;
    live.gone = false;
  },
  point: (data) => {
    live.points.push(data);
    if (live.points.length > POINTS_MAX) live.points.splice(0, live.points.length - POINTS_MAX);
  },
  ping: () => {},
  gone: (data) => {
    if (data.job === watchedJob) live.gone = true;
  },
};

function disconnect() {
  clearTimeout(timer);
  source?.close();
  source = null;
  live.connection = "connecting";
  announce();
}

function connect() {
  clearTimeout(timer);
  source?.close();
  source = new EventSource(`api/v1/events${watchedJob ? `?job=${watchedJob}` : ""}`);
  const opened = source;
  opened.onopen = () => {
    if (live.connection === "away") loadSession().catch(() => {});
    live.connection = "live";
    live.connections += 1;
    lastEventMs = Date.now();
    reconnectMs = RECONNECT_MS_MIN;
    announce();
  };
  opened.onerror = () => {
    live.connection = "away";
    announce();
    // The browser repeats a broken connection itself, but not a refused one.
    if (opened.readyState !== EventSource.CLOSED) return;
    clearTimeout(timer);
    timer = setTimeout(() => loadSession().catch(() => {}).then(() => opened === source && connect()), reconnectMs * (0.75 + Math.random() / 2));
    reconnectMs = Math.min(2 * reconnectMs, RECONNECT_MS_MAX);
  };
  for (const [kind, handle] of Object.entries(HANDLERS)) {
    opened.addEventListener(kind, (event) => {
      if (opened !== source) return;
      lastEventMs = Date.now();
      handle(JSON.parse(/** @type {MessageEvent} */ (event).data));
      announce();
    });
  }
}

setInterval(() => {
  if (source && live.connection === "live" && Date.now() - lastEventMs > SILENCE_MS_MAX) connect();
}, WATCH_EVERY_MS);

/** Starts the events. @param {number} job the job of the page; 0: none */
export function watch(job) {
  if (forget && job === watchedJob) return;
  if (job !== watchedJob) {
    live.job = null;
    live.gone = false;
    live.points = [];
  }
  watchedJob = job;
  forget?.();
  forget = whileVisible({ open: connect, close: disconnect });
}

/** Ends the events, after a logout. */
export function unwatch() {
  forget?.();
  forget = null;
  applySnapshot({ fleet: null, jobs: [], more: false });
}

/** Renders the component after each change of `live`. */
export function useLive() {
  const [, setRound] = useState(0);
  useEffect(() => {
    const update = () => setRound((round) => round + 1);
    listeners.add(update);
    return () => {
      listeners.delete(update);
    };
  }, []);
  return live;
}
