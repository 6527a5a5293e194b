// The binary columns of GET /api/v1/jobs/N/ranks.

/**
 * @typedef {object} Ranks
 * @property {number} job
 * @property {number} attempt
 * @property {string} state
 * @property {number} unixNs
 * @property {number} count
 * @property {number} ranksPerNode
 * @property {Record<string, Uint8Array | Int32Array | Float32Array>} columns
 */

const TYPES = { u8: Uint8Array, i32: Int32Array, f32: Float32Array };
const HEADER_BYTES_MAX = 1 << 20;

/**
 * @param {ArrayBuffer} buffer
 * @returns {Ranks}
 */
export function readColumns(buffer) {
  const bytes = new DataView(buffer).getUint32(0, true);
  if (bytes > HEADER_BYTES_MAX || 4 + bytes > buffer.byteLength) throw new Error(`The header of the ranks has ${bytes} bytes, but the answer only ${buffer.byteLength}.`);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, bytes)));
  /** @type {Ranks["columns"]} */
  const columns = {};
  for (const column of header.columns) {
    const type = TYPES[/** @type {keyof typeof TYPES} */ (column.type)];
    if (type) columns[column.name] = new type(buffer, column.offset, column.count);
  }
  return { job: header.job, attempt: header.attempt, state: header.state, unixNs: header.unix_ns, count: header.ranks, ranksPerNode: header.ranks_per_node, columns };
}

/** @param {Ranks} ranks @param {string} name @param {number} rank @returns {number} NaN: unknown */
export function valueOf(ranks, name, rank) {
  const column = ranks.columns[name];
  if (!column) return NaN;
  return column[name.startsWith("node_") ? Math.floor(rank / ranks.ranksPerNode) : rank];
}
