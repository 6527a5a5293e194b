// A table whose rows are created only where they are visible, so that 12,500 nodes scroll like ten.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";

/**
 * @typedef {object} Column
 * @property {string} key the column's name in addresses
 * @property {string} title
 * @property {(row: any) => any} value sorts, and is shown unless there is `cell`
 * @property {(row: any) => any} [cell]
 * @property {boolean} [number] right-aligned; sorts descending first
 * @property {number} width in pixels
 * @property {number} [grow] a share of the remaining width
 * @property {number} [rank] columns of a higher rank are hidden first on narrow screens; 0: never
 * @property {(row: any) => string} [tip] the title of the cell
 */

const ROW_PIXELS = 36;
const OVERSCAN_ROWS = 8;
const collator = new Intl.Collator("en", { numeric: true });

/** @param {any} a @param {any} b */
function compareValues(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

/**
 * Returns the rows by the column's value; rows without a value come last in both directions.
 * @param {any[]} rows @param {Column | undefined} column @param {boolean} descending
 */
export function sortRows(rows, column, descending) {
  if (!column) return rows;
  const keyed = rows.map((row, index) => ({ row, index, value: column.value(row) }));
  const missing = (/** @type {any} */ value) => value === null || value === undefined || value === "" || Number.isNaN(value);
  keyed.sort((a, b) => {
    const absent = Number(missing(a.value)) - Number(missing(b.value));
    if (absent !== 0) return absent;
    const order = compareValues(a.value, b.value);
    return (descending ? -order : order) || a.index - b.index;
  });
  return keyed.map((one) => one.row);
}

/** @param {Column[]} columns @param {number} width */
function fitting(columns, width) {
  let shown = [...columns];
  const total = () => shown.reduce((sum, column) => sum + column.width, 0);
  while (total() > width) {
    const rank = Math.max(...shown.map((column) => column.rank ?? 1));
    if (rank === 0) break;
    shown = shown.filter((column) => (column.rank ?? 1) < rank);
  }
  return shown;
}

/** @param {Column[]} columns @param {number} width @returns {string[]} */
function widthsOf(columns, width) {
  const fixed = columns.reduce((sum, column) => sum + column.width, 0);
  const shares = columns.reduce((sum, column) => sum + (column.grow ?? 0), 0);
  const rest = Math.max(0, width - fixed);
  return columns.map((column) => `${column.width + (shares ? (rest * (column.grow ?? 0)) / shares : 0)}px`);
}

/** @param {{direction: "ascending" | "descending" | undefined}} props */
function Arrow({ direction }) {
  if (!direction) return null;
  return html`<svg class="arrow" viewBox="0 0 8 8" aria-hidden="true"><path d=${direction === "ascending" ? "M4 1 8 7H0z" : "M0 1h8L4 7z"} /></svg>`;
}

/**
 * @param {object} props
 * @param {string} props.label
 * @param {Column[]} props.columns
 * @param {any[]} props.rows
 * @param {(row: any) => string | number} props.keyOf
 * @param {string} props.sort "-step": descending by the column `step`; "": as given
 * @param {(sort: string) => void} props.onSort
 * @param {string} [props.height]
 * @param {any} [props.selected] the key of the selected row
 * @param {string} [props.empty] shown instead of rows
 */
export function DataTable({ label, columns, rows, keyOf, sort, onSort, height, selected, empty = "No row matches the filter." }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  // Without a height, which is measured after the first frame, no row is created in vain.
  const [view, setView] = useState({ top: 0, height: 0, width: 1000 });
  const descending = sort.startsWith("-");
  const column = columns.find((one) => one.key === sort.replace(/^-/, ""));
  const sorted = useMemo(() => sortRows(rows, column, descending), [rows, sort]);

  const measure = useCallback(() => {
    const element = scroller.current;
    if (element) setView((old) => {
      const next = { top: element.scrollTop, height: element.clientHeight, width: element.clientWidth };
      return old.top === next.top && old.height === next.height && old.width === next.width ? old : next;
    });
  }, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (scroller.current) observer.observe(scroller.current);
    return () => observer.disconnect();
  }, []);

  const shown = fitting(columns, view.width);
  const widths = widthsOf(shown, view.width);
  const top = Math.min(view.top, Math.max(0, sorted.length * ROW_PIXELS - view.height));
  const first = Math.max(0, Math.floor(top / ROW_PIXELS) - OVERSCAN_ROWS);
  const last = view.height > 0 ? Math.min(sorted.length, Math.ceil((top + view.height) / ROW_PIXELS) + OVERSCAN_ROWS) : 0;

  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...(scroller.current?.querySelectorAll("tbody a") ?? [])];
    const index = links.indexOf(/** @type {Element} */ (document.activeElement));
    if (index < 0) return;
    event.preventDefault();
    const next = /** @type {HTMLElement | undefined} */ (links[index + (event.key === "ArrowDown" ? 1 : -1)]);
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }

  /** @param {Column} one */
  function sortBy(one) {
    const ascending = one.number ? `-${one.key}` : one.key;
    const other = one.number ? one.key : `-${one.key}`;
    onSort(sort === ascending ? other : ascending);
  }

  return html`<div class="table-scroll" ref=${scroller} tabindex="0" role="region" aria-label=${`${label} table`}
      style=${height ? { maxHeight: height } : undefined} onScroll=${measure} onKeyDown=${onKeyDown}>
    <table class="grid" aria-rowcount=${sorted.length + 1}>
      <colgroup>${shown.map((one, i) => html`<col key=${one.key} style=${{ width: widths[i] }} />`)}</colgroup>
      <thead><tr aria-rowindex="1">${shown.map((one) => {
        const direction = column === one ? (descending ? "descending" : "ascending") : undefined;
        return html`<th key=${one.key} scope="col" class=${one.number ? "number" : ""} aria-sort=${direction ?? "none"}>
          <button type="button" onClick=${() => sortBy(one)}>${one.title}<${Arrow} direction=${direction} /></button>
        </th>`;
      })}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="spacer" key="above" aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${first * ROW_PIXELS}px` }}></td></tr>`}
        ${sorted.slice(first, last).map((row, i) => html`<tr key=${keyOf(row)} aria-rowindex=${first + i + 2} aria-selected=${selected === keyOf(row) ? "true" : undefined}>
          ${shown.map((one) => html`<td key=${one.key} class=${one.number ? "number" : ""} title=${one.tip?.(row)}>${one.cell ? one.cell(row) : one.value(row)}</td>`)}
        </tr>`)}
        ${last < sorted.length && html`<tr class="spacer" key="below" aria-hidden="true"><td colspan=${shown.length} style=${{ height: `${(sorted.length - last) * ROW_PIXELS}px` }}></td></tr>`}
      </tbody>
    </table>
    ${sorted.length === 0 && html`<p class="empty">${empty}</p>`}
  </div>`;
}
