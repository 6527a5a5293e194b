// The dialog that excludes a node.
import { html } from "../html.js";
import { postJson } from "../api.js";
import { shorten } from "../text.js";

const HOUR_SECONDS = 3600;

/**
 * Returns the request to exclude a node, for the dialog.
 * @param {string} name @param {() => void} after
 */
export function excludeRequest(name, after) {
  return {
    title: `Exclude node ${shorten(name, 60)}`,
    text: "The node gets no more ranks. Running ranks continue, unless they are moved.",
    action: "Exclude",
    danger: true,
    fields: html`
      <div class="field"><label for="reason">Reason</label><input id="reason" name="reason" type="text" required maxlength="200" placeholder="e.g. fan fails, ticket 4711" /></div>
      <div class="field"><label for="hours">Hours</label><input id="hours" name="hours" type="number" min="0" max="8760" step="any" value="0" /><span class="hint">0: until it is admitted</span></div>
      <label class="row"><input type="checkbox" name="evacuate" /> Running ranks save a checkpoint and move to other nodes</label>`,
    run: async (/** @type {Record<string, string>} */ values) => {
      await postJson(`nodes/${encodeURIComponent(name)}/exclude`, { reason: values.reason, seconds: Math.round(Number(values.hours || 0) * HOUR_SECONDS), evacuate: values.evacuate === "on" });
      after();
      return `Node ${shorten(name, 60)} is excluded.`;
    },
  };
}
