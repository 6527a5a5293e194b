// Requests to the coordinator's API. The types of answers are in the OpenAPI document,
// /api/v1/openapi.json.
import { useCallback, useEffect, useRef, useState } from "./html.js";

const BASE = "api/v1/";
const RETRY_MS = 3000;
const RETRY_MS_MAX = 60000;
const ROLES = ["viewer", "submitter", "admin"];

/** @typedef {{login_required: boolean, role: string | null, user: string, teams: string[], csrf: string, version: string, epoch: number, unix_ns: number}} Session */

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message @param {number} retryMs */
  constructor(status, code, message, retryMs = 0) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryMs = retryMs; // 0: a repetition changes nothing
  }
}

/** @type {Session | null} */
let session = null;
// The coordinator's clock minus the browser's.
let clockOffsetMs = 0;
/** @type {Set<() => void>} */
const sessionListeners = new Set();

/** Returns the coordinator's time in nanoseconds, to the precision of the network. */
export function nowNs() {
  return (Date.now() + clockOffsetMs) * 1e6;
}

export function currentSession() {
  return session;
}

/** @param {string} role */
export function hasRole(role) {
  return session !== null && session.role !== null && ROLES.indexOf(session.role) >= ROLES.indexOf(role);
}

/**
 * Returns whether a job belongs to the caller.
 * @param {{owner?: string, team?: string}} spec
 */
export function ownsJob(spec) {
  return !spec.owner || hasRole("admin") || (session !== null && (session.user === spec.owner || (Boolean(spec.team) && session.teams.includes(spec.team ?? ""))));
}

/** @param {Session} next */
function replaceSession(next) {
  session = next;
  clockOffsetMs = next.unix_ns / 1e6 - Date.now();
  for (const listener of sessionListeners) listener();
}

/** @param {Response} response @returns {Promise<ApiError>} */
async function errorOf(response) {
  const after = Number(response.headers.get("Retry-After"));
  const retryMs = after > 0 ? Math.min(after * 1000, RETRY_MS_MAX) : response.status === 429 || response.status >= 500 ? RETRY_MS : 0;
  try {
    const body = await response.json();
    return new ApiError(response.status, body.error.code, body.error.message, retryMs);
  } catch {
    return new ApiError(response.status, "UNAVAILABLE", `The coordinator answered with status ${response.status}.`, retryMs);
  }
}

/** @param {string} path @param {RequestInit} options */
async function request(path, options) {
  let response;
  try {
    response = await fetch(BASE + path, { credentials: "same-origin", ...options });
  } catch (problem) {
    if (options.signal?.aborted) throw problem;
    throw new ApiError(0, "UNAVAILABLE", "The coordinator cannot be reached.", RETRY_MS);
  }
  if (response.ok) return response;
  const error = await errorOf(response);
  if (error.status === 401 && session?.role && path !== "login") await loadSession().catch(() => {});
  throw error;
}

export async function loadSession() {
  replaceSession(await (await request("session", { cache: "no-store" })).json());
}

/** @param {string} path @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function getJson(path, signal) {
  return (await request(path, { signal })).json();
}

/** @param {string} path @param {AbortSignal} [signal] */
export async function getBinary(path, signal) {
  return (await request(path, { signal, cache: "no-cache" })).arrayBuffer();
}

/** @param {string} path @param {object} body @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function postJson(path, body, signal) {
  const send = () => request(path, {
    method: "POST",
    signal,
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Muster-CSRF": session?.csrf ?? "" },
  });
  try {
    return await (await send()).json();
  } catch (problem) {
    // The coordinator was restarted, or the login changed in another tab.
    const isStale = problem instanceof ApiError && problem.status === 403 && problem.message.startsWith("CSRF");
    if (!isStale) throw problem;
    await loadSession();
    return (await send()).json();
  }
}

/** @param {string} token */
export async function login(token) {
  replaceSession(await postJson("login", { token }));
}

export async function logout() {
  replaceSession(await postJson("logout", {}));
}

/** @returns {Session | null} */
export function useSession() {
  const [current, setCurrent] = useState(session);
  useEffect(() => {
    const update = () => setCurrent(session);
    update();
    sessionListeners.add(update);
    return () => {
      sessionListeners.delete(update);
    };
  }, []);
  return current;
}

/**
 * Loads an object, and again every `everyMs` while the page is visible and when it becomes visible.
 * After a failure the last value stays, and the request is repeated if that may help.
 * @template T
 * @param {string} key a new key starts again
 * @param {((signal: AbortSignal) => Promise<T>) | null} load null: nothing to load
 * @param {number} [everyMs] 0: once
 * @returns {{value: T | null, error: ApiError | null, reload: () => void}}
 */
export function useLoaded(key, load, everyMs = 0) {
  const [state, setState] = useState({ key, value: /** @type {T | null} */ (null), error: /** @type {ApiError | null} */ (null) });
  const [round, setRound] = useState(0);
  const loader = useRef(load);
  loader.current = load;
  useEffect(() => {
    const abort = new AbortController();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let isFirst = true;
    async function run() {
      clearTimeout(timer);
      let pauseMs = everyMs;
      if (loader.current && (isFirst || !document.hidden)) {
        isFirst = false;
        try {
          const value = await loader.current(abort.signal);
          if (!abort.signal.aborted) setState({ key, value, error: null });
        } catch (problem) {
          const error = problem instanceof ApiError ? problem : new ApiError(0, "INTERNAL", String(problem));
          if (!abort.signal.aborted) setState((old) => ({ key, value: old.key === key ? old.value : null, error }));
          pauseMs = Math.max(everyMs, error.retryMs);
        }
      }
      if (pauseMs > 0 && !abort.signal.aborted) timer = setTimeout(run, pauseMs);
    }
    const onVisible = () => {
      if (!document.hidden && everyMs > 0) run();
    };
    document.addEventListener("visibilitychange", onVisible);
    run();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [key, everyMs, round, load === null]);
  const reload = useCallback(() => setRound((old) => old + 1), []);
  const current = state.key === key;
  return { value: current ? state.value : null, error: current ? state.error : null, reload };
}
