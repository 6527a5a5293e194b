// The output of a job: of all ranks by time with equal lines collapsed, or of one rank.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { clockMs, count, dateTime } from "../format.js";
import { LINES_MAX, LogLines } from "../log_lines.js";
import { changeQuery } from "../router.js";
import { whileVisible } from "../visibility.js";
import { clean, rankRanges } from "../text.js";
import { NumberField, Panel } from "../components/parts.js";

const LINE_PIXELS = 20;
const OVERSCAN = 20;
const TAIL_BYTES = 262144;
const RENDER_EVERY_MS = 200;
const RETRY_MS = 5000;
// The coordinator merges the logs of at most this many ranks.
const MERGED_RANKS_MAX = 1024;

/** Follows the log. @param {number} job @param {number} rank @param {number} attempt */
function useLog(job, rank, attempt) {
  const store = useRef(new LogLines());
  const [version, setVersion] = useState(0);
  const [state, setState] = useState("connecting");
  const [note, setNote] = useState("");
  useEffect(() => {
    store.current = new LogLines();
    setState("connecting");
    setNote("");
    setVersion(0);
    const address = `api/v1/jobs/${job}/logs/events?rank=${rank}${attempt ? `&attempt=${attempt}` : ""}&tail=${TAIL_BYTES}`;
    /** @type {EventSource | undefined} */
    let source;
    let hasEnded = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let retry;
    let shown = 0;
    const timer = setInterval(() => {
      if (store.current.version === shown) return;
      shown = store.current.version;
      setVersion(shown);
    }, RENDER_EVERY_MS);
    function connect() {
      if (hasEnded) return;
      const opened = new EventSource(address);
      source = opened;
      opened.onopen = () => setState("following");
      opened.onerror = () => {
        const isRefused = opened.readyState === EventSource.CLOSED;
        setState(isRefused ? "unavailable" : "reconnecting");
        if (isRefused) retry = setTimeout(connect, RETRY_MS);
      };
      opened.addEventListener("log", (event) => store.current.add(JSON.parse(/** @type {MessageEvent} */ (event).data)));
      opened.addEventListener("end", (event) => {
        hasEnded = true;
        opened.close();
        store.current.finish();
        setState("ended");
        setNote(JSON.parse(/** @type {MessageEvent} */ (event).data).message ?? "");
      });
    }
    function disconnect() {
      clearTimeout(retry);
      source?.close();
    }
    const forget = whileVisible({ open: connect, close: disconnect });
    return () => {
      clearInterval(timer);
      forget();
    };
  }, [job, rank, attempt]);
  return { lines: store.current.lines, dropped: store.current.dropped, version, state, note };
}

/** @param {import("../log_lines.js").LogLine[]} lines */
function asText(lines) {
  return lines.map((line) => `${new Date(line.unixNs / 1e6).toISOString()} [${line.attempt}] [${rankRanges(line.ranks, 1000)}] ${line.text}\n`).join("");
}

/** @param {string} name @param {string} text */
function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** @param {{line: import("../log_lines.js").LogLine, withRanks: boolean, query: string}} props */
function Line({ line, withRanks, query }) {
  const text = clean(line.text);
  const at = query ? text.toLowerCase().indexOf(query) : -1;
  const collapsed = line.ranks.length > 1;
  return html`<div class="line">
    <span class="time" title=${dateTime(line.unixNs)}>${line.unixNs ? clockMs(line.unixNs) : ""}</span>
    ${withRanks && html`<span class=${`rank${collapsed ? " many" : ""}`} title=${`${line.ranks.length} ranks: ${rankRanges(line.ranks)}`}>
      ${collapsed ? `× ${count(line.ranks.length)}` : line.ranks[0]}</span>`}
    <bdi class="words">${at < 0 ? text : html`${text.slice(0, at)}<mark>${text.slice(at, at + query.length)}</mark>${text.slice(at + query.length)}`}</bdi>
  </div>`;
}

/** @param {{lines: import("../log_lines.js").LogLine[], dropped: number, follow: boolean, onFollow: (follow: boolean) => void, withRanks: boolean, query: string}} props */
function LineList({ lines, dropped, follow, onFollow, withRanks, query }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ top: 0, height: 600 });
  const bottom = useRef(0);
  const droppedBefore = useRef(dropped);
  useLayoutEffect(() => {
    // The lines under the reader stay when older ones are dropped.
    const element = scroller.current;
    if (element && !follow) element.scrollTop -= (dropped - droppedBefore.current) * LINE_PIXELS;
    droppedBefore.current = dropped;
  }, [dropped]);
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element || !follow) return;
    element.scrollTop = element.scrollHeight;
    bottom.current = element.scrollTop;
    setView((old) => (old.top === element.scrollTop && old.height === element.clientHeight ? old : { top: element.scrollTop, height: element.clientHeight }));
  }, [lines, lines.length, follow]);
  function onScroll() {
    const element = /** @type {HTMLDivElement} */ (scroller.current);
    setView({ top: element.scrollTop, height: element.clientHeight });
    const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - LINE_PIXELS;
    if (follow && element.scrollTop < bottom.current - LINE_PIXELS && !isAtEnd) onFollow(false);
    if (!follow && isAtEnd && element.scrollTop > bottom.current) onFollow(true);
    bottom.current = element.scrollTop;
  }
  const first = Math.max(0, Math.floor(view.top / LINE_PIXELS) - OVERSCAN);
  const last = Math.min(lines.length, Math.ceil((view.top + view.height) / LINE_PIXELS) + OVERSCAN);
  return html`<div class="log" ref=${scroller} tabindex="0" role="log" aria-label="Output" aria-live="off" onScroll=${onScroll}>
    <div style=${{ height: `${lines.length * LINE_PIXELS}px`, position: "relative" }}>
      <div style=${{ position: "absolute", top: `${first * LINE_PIXELS}px`, minWidth: "100%" }}>
        ${lines.slice(first, last).map((line) => html`<${Line} key=${line.id} line=${line} withRanks=${withRanks} query=${query} />`)}
      </div>
    </div>
    ${lines.length === 0 && html`<p class="empty">No line.</p>`}
  </div>`;
}

const STATES = { connecting: "Connecting…", following: "Following", reconnecting: "Reconnecting…", unavailable: "The log is not available", ended: "The job has ended" };

/** @param {{job: any, query: URLSearchParams}} props */
export function LogsPanel({ job, query }) {
  const given = query.get("rank") ?? "";
  const ranks = (job.nodes || job.spec.nodes) * job.spec.ranks_per_node;
  const rank = /^\d{1,9}$/.test(given) ? Number(given) : ranks > MERGED_RANKS_MAX ? 0 : -1;
  const attempt = /^\d{1,9}$/.test(query.get("attempt") ?? "") ? Number(query.get("attempt")) : 0;
  const search = (query.get("q") ?? "").toLowerCase();
  const [follow, setFollow] = useState(true);
  const { lines, dropped, version, state, note } = useLog(job.id, rank, attempt);
  const shown = useMemo(() => (search ? lines.filter((line) => line.text.toLowerCase().includes(search)) : lines), [lines, version, search]);
  const fileName = `job-${job.id}${attempt ? `-attempt-${attempt}` : ""}${rank >= 0 ? `-rank-${rank}` : ""}.log`;
  return html`<${Panel} title="Logs" class="logs" aside=${html`
      <span class="muted" role="status">${STATES[/** @type {keyof typeof STATES} */ (state)]}</span>
      <${NumberField} label="Rank" min=${0} placeholder="all" value=${rank >= 0 ? rank : ""} onChoose=${(/** @type {string} */ value) => changeQuery({ rank: value })} />
      <${NumberField} label="Attempt" min=${1} max=${job.attempt} placeholder="newest" value=${attempt || ""}
        onChoose=${(/** @type {string} */ value) => changeQuery({ attempt: value })} />
      <input type="search" aria-label="Search lines" placeholder="Search lines" value=${query.get("q") ?? ""} onInput=${(/** @type {any} */ event) => changeQuery({ q: event.target.value })} />
      <button type="button" class="button small" aria-pressed=${follow ? "true" : "false"} onClick=${() => setFollow(!follow)}>Follow</button>
      <button type="button" class="button small" disabled=${shown.length === 0} onClick=${() => download(fileName, asText(shown))}>Download</button>`}>
    ${note && html`<p class="notice warn" role="status">${clean(note)}</p>`}
    <${LineList} lines=${shown} dropped=${search ? 0 : dropped} follow=${follow} onFollow=${setFollow} withRanks=${rank < 0} query=${search} />
    <p class="muted log-note">${count(shown.length)} lines${search ? ` of ${count(lines.length)}` : ""}. ${dropped > 0 ? `The page holds the newest ${count(LINES_MAX)} lines; ` : "Begins at most 256 KiB before the end; "}<code>muster logs ${job.id}${rank >= 0 ? ` --rank ${rank}` : " --rank all"}</code> has all.</p>
  <//>`;
}
