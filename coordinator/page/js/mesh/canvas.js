// The canvas of a mesh with pointer and keyboard.
import { html, useEffect, useRef } from "../html.js";
import { onThemeChange } from "../theme.js";
import { MeshView } from "./view.js";

const DRAG_PIXELS = 4;
/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * @param {object} props
 * @param {import("./layout.js").Layout} props.layout
 * @param {Uint32Array} props.cells
 * @param {number} props.marked the chosen rank; -1: none
 * @param {(rank: number) => void} props.onChoose
 * @param {(rank: number, x: number, y: number) => void} props.onPoint
 * @param {(view: MeshView) => void} props.onReady
 * @param {string} props.label
 */
export function MeshCanvas({ layout, cells, marked, onChoose, onPoint, onReady, label }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const view = useRef(/** @type {MeshView | null} */ (null));
  const handlers = useRef({ onChoose, onPoint, marked });
  handlers.current = { onChoose, onPoint, marked };

  useEffect(() => {
    const element = /** @type {HTMLCanvasElement} */ (canvas.current);
    const created = new MeshView(element, () => {});
    view.current = created;
    const observer = new ResizeObserver(() => created.resize());
    observer.observe(element);
    created.resize();
    const forget = onThemeChange(() => created.schedule());
    // The wheel zooms while the canvas has the focus or a key is held. Else it scrolls the page.
    const onWheel = (/** @type {WheelEvent} */ event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && document.activeElement !== element) return;
      event.preventDefault();
      const box = element.getBoundingClientRect();
      created.zoom(Math.exp(-event.deltaY / 300), (event.clientX - box.left) * devicePixelRatio, (event.clientY - box.top) * devicePixelRatio);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    onReady(created);
    return () => {
      observer.disconnect();
      forget();
      element.removeEventListener("wheel", onWheel);
    };
  }, []);

  useEffect(() => {
    view.current?.setLayout(layout);
    view.current?.setCells(cells);
  }, [layout]);
  useEffect(() => view.current?.setCells(cells), [cells]);
  useEffect(() => {
    if (!view.current) return;
    view.current.marked = marked;
    view.current.reveal(marked);
    view.current.schedule();
  }, [marked]);

  const drag = useRef(/** @type {{x: number, y: number, moved: boolean} | null} */ (null));

  /** @param {PointerEvent} event */
  function onMove(event) {
    const current = view.current;
    if (!current || !event.isPrimary) return;
    if (drag.current) {
      const dx = event.clientX - drag.current.x;
      const dy = event.clientY - drag.current.y;
      if (!drag.current.moved && Math.hypot(dx, dy) < DRAG_PIXELS) return;
      drag.current = { x: event.clientX, y: event.clientY, moved: true };
      current.pan(dx * devicePixelRatio, dy * devicePixelRatio);
      return;
    }
    const rank = current.rankAt(event.clientX, event.clientY);
    if (rank !== current.pointed) {
      current.pointed = rank;
      current.schedule();
    }
    handlers.current.onPoint(rank, event.clientX, event.clientY);
  }

  /** @param {PointerEvent} event */
  function onUp(event) {
    const wasMoved = drag.current?.moved;
    drag.current = null;
    if (!wasMoved) handlers.current.onChoose(view.current?.rankAt(event.clientX, event.clientY) ?? -1);
  }

  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    const current = view.current;
    if (!current) return;
    const middle = /** @type {[number, number]} */ ([current.canvas.width / 2, current.canvas.height / 2]);
    if (event.key in ARROWS) {
      const from = handlers.current.marked;
      handlers.current.onChoose(from < 0 ? 0 : current.neighbour(from, ...ARROWS[event.key]));
    } else if (event.key === "+" || event.key === "=") current.zoom(1.4, ...middle);
    else if (event.key === "-") current.zoom(1 / 1.4, ...middle);
    else if (event.key === "0") current.fit();
    else if (event.key === "Escape") handlers.current.onChoose(-1);
    else return;
    event.preventDefault();
  }

  return html`<canvas class="mesh-canvas" ref=${canvas} tabindex="0" role="application" aria-roledescription="mesh" aria-label=${label}
    onPointerDown=${(/** @type {PointerEvent} */ event) => {
      if (!event.isPrimary) return;
      drag.current = { x: event.clientX, y: event.clientY, moved: false };
      canvas.current?.setPointerCapture(event.pointerId);
    }}
    onPointerMove=${onMove} onPointerUp=${onUp} onPointerCancel=${() => { drag.current = null; }}
    onPointerLeave=${() => {
      if (view.current) view.current.pointed = -1;
      view.current?.schedule();
      onPoint(-1, 0, 0);
    }} onKeyDown=${onKeyDown}></canvas>`;
}
