// Lines of logs: split from chunks, equal lines of many ranks collapsed, and bounded.

/**
 * @typedef {object} LogLine
 * @property {number} id grows with each line
 * @property {number} attempt
 * @property {number[]} ranks ascending
 * @property {number} unixNs arrival of the first
 * @property {string} text
 */

export const LINES_MAX = 20000;
const LINE_CHARACTERS_MAX = 8192;
const CHARACTERS_MAX = 16 << 20;
const COLLAPSE_NS = 1e9;
// Equal lines are searched among these many before.
const COLLAPSE_LINES = 256;
const OPEN_RANKS_MAX = 4096;

/** Returns the first index whose rank is not below `rank`. @param {number[]} ranks @param {number} rank */
function placeOf(ranks, rank) {
  let low = 0;
  let high = ranks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranks[middle] < rank) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {{bytes: number, text: string}} chunk */
function isUtf8(chunk) {
  return new TextEncoder().encode(chunk.text).length === chunk.bytes;
}

/**
 * Returns the text after its first bytes. Bytes that are not UTF-8 became U+FFFD, so that the text
 * may have another length than the bytes; then the part after the first line break is returned.
 * @param {{bytes: number, text: string}} chunk @param {number} bytes
 */
function textAfter(chunk, bytes) {
  if (isUtf8(chunk)) return new TextDecoder().decode(new TextEncoder().encode(chunk.text).subarray(bytes));
  return chunk.text.slice(chunk.text.indexOf("\n") + 1);
}

export class LogLines {
  constructor() {
    /** @type {LogLine[]} */
    this.lines = [];
    this.dropped = 0;
    this.characters = 0;
    this.version = 0;
    this.nextId = 1;
    /** @type {Map<string, {text: string, unixNs: number}>} beginnings of lines by attempt and rank */
    this.open = new Map();
    /** @type {Map<string, number>} ends of the received parts of logs by attempt and rank, in bytes */
    this.ends = new Map();
  }

  /** @param {{attempt: number, rank: number, offset: number, bytes: number, unix_ns: number, text: string}} chunk */
  add(chunk) {
    const key = `${chunk.attempt} ${chunk.rank}`;
    // After a reconnection the stream begins with parts that are already here.
    const end = this.ends.get(key) ?? chunk.offset;
    if (chunk.bytes > 0 && chunk.offset + chunk.bytes <= end) return;
    this.ends.set(key, chunk.offset + chunk.bytes);
    if (chunk.offset > end) this.addGap(chunk, key, chunk.offset - end);
    const fresh = chunk.offset < end ? textAfter(chunk, end - chunk.offset) : chunk.text;
    if (chunk.offset < end && !isUtf8(chunk)) this.open.delete(key);
    const before = this.open.get(key);
    const parts = ((before?.text ?? "") + fresh).split("\n");
    const rest = parts.pop() ?? "";
    for (const text of parts) this.addLine(chunk.attempt, chunk.rank, before?.unixNs || chunk.unix_ns, text);
    this.open.delete(key);
    if (rest.length > LINE_CHARACTERS_MAX) this.addLine(chunk.attempt, chunk.rank, chunk.unix_ns, rest);
    else if (rest) this.open.set(key, { text: rest, unixNs: chunk.unix_ns });
    if (this.open.size > OPEN_RANKS_MAX) this.finish();
    this.version += 1;
  }

  /**
   * Adds a line in the place of output that was written while the stream was closed, and is no longer
   * among what the stream begins with.
   * @param {{attempt: number, rank: number, unix_ns: number}} chunk @param {string} key @param {number} bytes
   */
  addGap({ attempt, rank, unix_ns: unixNs }, key, bytes) {
    const before = this.open.get(key);
    if (before) this.addLine(attempt, rank, before.unixNs, before.text);
    this.open.delete(key);
    this.addLine(attempt, rank, unixNs, `⟨${bytes} bytes are not shown⟩`);
  }

  /** Adds the last lines of ended ranks, which have no line break. */
  finish() {
    for (const [key, { text, unixNs }] of this.open) {
      const [attempt, rank] = key.split(" ").map(Number);
      this.addLine(attempt, rank, unixNs, text);
    }
    this.open.clear();
    this.version += 1;
  }

  /** @param {number} attempt @param {number} rank @param {number} unixNs @param {string} raw */
  addLine(attempt, rank, unixNs, raw) {
    // A progress bar that returns to the start of its line: its last state.
    const returned = raw.replace(/\r+$/, "");
    const text = returned.slice(returned.lastIndexOf("\r") + 1).slice(0, LINE_CHARACTERS_MAX);
    const oldest = Math.max(0, this.lines.length - COLLAPSE_LINES);
    for (let i = this.lines.length - 1; i >= oldest; --i) {
      const line = this.lines[i];
      if (unixNs - line.unixNs > COLLAPSE_NS) break;
      if (line.text !== text || line.attempt !== attempt) continue;
      const at = placeOf(line.ranks, rank);
      if (line.ranks[at] === rank) continue; // the rank has printed the same again
      line.ranks.splice(at, 0, rank);
      this.lines[i] = { ...line };
      return;
    }
    this.lines.push({ id: this.nextId++, attempt, ranks: [rank], unixNs, text });
    this.characters += text.length;
    if (this.lines.length > LINES_MAX + LINES_MAX / 8 || this.characters > CHARACTERS_MAX) this.dropOldest();
  }

  /** Keeps at most LINES_MAX lines and seven eighths of the characters. */
  dropOldest() {
    let first = Math.max(0, this.lines.length - LINES_MAX);
    for (let i = 0; i < first; ++i) this.characters -= this.lines[i].text.length;
    while (this.characters > (CHARACTERS_MAX / 8) * 7 && first < this.lines.length) this.characters -= this.lines[first++].text.length;
    this.dropped += first;
    this.lines = this.lines.slice(first);
  }
}
