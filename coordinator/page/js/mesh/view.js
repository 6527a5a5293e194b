// Draws the cells of a mesh on a canvas: one pixel per rank in an image, which the canvas enlarges.
// A frame of 100,000 ranks takes a few milliseconds.
import { themeColour } from "../theme.js";

const SCALE_MAX = 64;
const SEAM_FROM_PIXELS = 5; // cells of at least this size are separated by lines
const MARGIN = 8;

export class MeshView {
  /** @param {HTMLCanvasElement} canvas @param {(view: MeshView) => void} onChange called after a frame */
  constructor(canvas, onChange) {
    this.canvas = canvas;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.onChange = onChange;
    /** @type {import("./layout.js").Layout | null} */
    this.layout = null;
    this.image = document.createElement("canvas");
    this.pixels = /** @type {ImageData | null} */ (null);
    this.scale = 1;
    this.left = 0;
    this.top = 0;
    this.marked = -1;
    this.pointed = -1;
    this.isFitted = true;
    this.isScheduled = false;
    this.frames = 0;
  }

  /** @param {import("./layout.js").Layout} layout */
  setLayout(layout) {
    this.layout = layout;
    this.image.width = layout.width;
    this.image.height = layout.height;
    this.pixels = new ImageData(layout.width, layout.height);
    this.fit();
  }

  /** @param {Uint32Array} cells a packed colour for each rank */
  setCells(cells) {
    if (!this.layout || !this.pixels) return;
    const target = new Uint32Array(this.pixels.data.buffer);
    const { x, y, width } = this.layout;
    const ranks = Math.min(cells.length, x.length);
    for (let rank = 0; rank < ranks; ++rank) target[y[rank] * width + x[rank]] = cells[rank];
    /** @type {CanvasRenderingContext2D} */ (this.image.getContext("2d")).putImageData(this.pixels, 0, 0);
    this.schedule();
  }

  /** Adapts the canvas to its size on the page. */
  resize() {
    const ratio = devicePixelRatio;
    const width = Math.round(this.canvas.clientWidth * ratio);
    const height = Math.round(this.canvas.clientHeight * ratio);
    if (width === this.canvas.width && height === this.canvas.height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    if (this.isFitted) this.fit();
    else this.schedule();
  }

  fit() {
    if (!this.layout) return;
    const ratio = devicePixelRatio;
    const { width, height } = this.layout;
    const room = [this.canvas.width - 2 * MARGIN * ratio, this.canvas.height - 2 * MARGIN * ratio];
    const exact = Math.min(room[0] / width, room[1] / height, SCALE_MAX * ratio);
    this.scale = exact >= 2 ? Math.floor(exact) : Math.max(exact, 0.05);
    this.left = Math.round((this.canvas.width - width * this.scale) / 2);
    this.top = Math.round((this.canvas.height - height * this.scale) / 2);
    this.isFitted = true;
    this.schedule();
  }

  /** @param {number} factor @param {number} x @param {number} y the fixed point, in pixels of the canvas */
  zoom(factor, x, y) {
    const next = Math.min(SCALE_MAX * devicePixelRatio, Math.max(0.25, this.scale * factor));
    this.left = x - ((x - this.left) * next) / this.scale;
    this.top = y - ((y - this.top) * next) / this.scale;
    this.scale = next;
    this.isFitted = false;
    this.schedule();
  }

  /** @param {number} dx @param {number} dy */
  pan(dx, dy) {
    this.left += dx;
    this.top += dy;
    this.isFitted = false;
    this.schedule();
  }

  /**
   * Returns the rank at a point of the page, or -1.
   * @param {number} clientX @param {number} clientY
   */
  rankAt(clientX, clientY) {
    if (!this.layout) return -1;
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor(((clientX - box.left) * devicePixelRatio - this.left) / this.scale);
    const y = Math.floor(((clientY - box.top) * devicePixelRatio - this.top) / this.scale);
    if (x < 0 || y < 0 || x >= this.layout.width || y >= this.layout.height) return -1;
    return this.layout.owner[y * this.layout.width + x];
  }

  /**
   * Returns the nearest rank in a direction, or the same one.
   * @param {number} rank @param {number} dx @param {number} dy
   */
  neighbour(rank, dx, dy) {
    if (!this.layout || rank < 0) return rank;
    const { x, y, width, height, owner } = this.layout;
    let column = x[rank] + dx;
    let row = y[rank] + dy;
    for (; column >= 0 && row >= 0 && column < width && row < height; column += dx, row += dy) {
      const found = owner[row * width + column];
      if (found >= 0) return found;
    }
    return rank;
  }

  /**
   * Returns the rank's cell relative to the canvas, in CSS pixels.
   * @param {number} rank
   */
  boxOf(rank) {
    if (!this.layout || rank < 0) return null;
    const ratio = devicePixelRatio;
    return { left: (this.left + this.layout.x[rank] * this.scale) / ratio, top: (this.top + this.layout.y[rank] * this.scale) / ratio, size: this.scale / ratio };
  }

  /** Moves the picture if the rank's cell is outside the canvas. @param {number} rank */
  reveal(rank) {
    if (!this.layout || rank < 0 || rank >= this.layout.x.length) return;
    const x = this.left + this.layout.x[rank] * this.scale;
    const y = this.top + this.layout.y[rank] * this.scale;
    if (x < 0 || x + this.scale > this.canvas.width) this.left += this.canvas.width / 2 - x;
    if (y < 0 || y + this.scale > this.canvas.height) this.top += this.canvas.height / 2 - y;
  }

  schedule() {
    if (this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  draw() {
    const { context, canvas, layout } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = themeColour("--mesh-ground");
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (!layout) return;
    context.imageSmoothingEnabled = this.scale < 1;
    context.drawImage(this.image, this.left, this.top, layout.width * this.scale, layout.height * this.scale);
    if (this.scale >= SEAM_FROM_PIXELS * devicePixelRatio) this.drawSeams();
    this.outline(this.marked, 3);
    this.outline(this.pointed, 2);
    this.frames += 1;
    this.onChange(this);
  }

  drawSeams() {
    const { context, canvas, layout, scale } = this;
    if (!layout) return;
    context.strokeStyle = themeColour("--mesh-ground");
    context.lineWidth = Math.max(1, Math.round(scale / 10));
    context.beginPath();
    const columns = [Math.max(0, Math.floor(-this.left / scale)), Math.min(layout.width, Math.ceil((canvas.width - this.left) / scale))];
    const rows = [Math.max(0, Math.floor(-this.top / scale)), Math.min(layout.height, Math.ceil((canvas.height - this.top) / scale))];
    for (let column = columns[0]; column <= columns[1]; ++column) {
      const at = Math.round(this.left + column * scale);
      context.moveTo(at, this.top + rows[0] * scale);
      context.lineTo(at, this.top + rows[1] * scale);
    }
    for (let row = rows[0]; row <= rows[1]; ++row) {
      const at = Math.round(this.top + row * scale);
      context.moveTo(this.left + columns[0] * scale, at);
      context.lineTo(this.left + columns[1] * scale, at);
    }
    context.stroke();
  }

  /** Black and white, which are visible on every colour. @param {number} rank @param {number} width */
  outline(rank, width) {
    if (rank < 0 || !this.layout || rank >= this.layout.x.length) return;
    const { context, scale } = this;
    const size = Math.max(scale, 6 * devicePixelRatio);
    const shift = (size - scale) / 2;
    const left = this.left + this.layout.x[rank] * scale - shift;
    const top = this.top + this.layout.y[rank] * scale - shift;
    context.lineWidth = (width + 2) * devicePixelRatio;
    context.strokeStyle = "#000000";
    context.strokeRect(left, top, size, size);
    context.lineWidth = (width - 1) * devicePixelRatio;
    context.strokeStyle = "#ffffff";
    context.strokeRect(left, top, size, size);
  }
}
