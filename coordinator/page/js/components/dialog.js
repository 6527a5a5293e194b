// A dialog that confirms an action. The browser's own element keeps the focus inside and closes on
// Escape.
import { html, useEffect, useRef, useState } from "../html.js";
import { clean } from "../text.js";

/**
 * @typedef {object} Request
 * @property {string} title
 * @property {any} text
 * @property {string} action the word on the button
 * @property {boolean} [danger]
 * @property {any} [fields] form elements; their values are passed to `run` by name
 * @property {(values: Record<string, string>) => Promise<string>} run returns the report
 */

/** @param {{request: Request, onClose: (report: string) => void}} props */
export function ConfirmDialog({ request, onClose }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const opener = /** @type {HTMLElement | null} */ (document.activeElement);
    dialog.current?.showModal();
    return () => opener?.focus?.();
  }, []);

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const values = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
    setBusy(true);
    setError("");
    try {
      onClose(await request.run(values));
    } catch (problem) {
      setError(/** @type {Error} */ (problem).message);
      setBusy(false);
    }
  }

  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${() => onClose("")}>
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${request.title}</h2>
      <div class="content">
        ${request.text && html`<p>${request.text}</p>`}
        ${request.fields}
        ${error && html`<p class="notice bad" role="alert">${clean(error)}</p>`}
      </div>
      <div class="buttons">
        <button type="button" class="button" onClick=${() => onClose("")}>Back</button>
        <button class=${`button main${request.danger ? " danger" : ""}`} disabled=${busy}>${busy ? "Working…" : request.action}</button>
      </div>
    </form>
  </dialog>`;
}

/** @param {{text: string, onDone: () => void}} props */
export function Toast({ text, onDone }) {
  useEffect(() => {
    const timer = setTimeout(onDone, 6000);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<div class="toast" role="status">${clean(text)}</div>`;
}

/** Returns a function that opens the dialog for a request, and the elements to render. */
export function useConfirm() {
  const [request, setRequest] = useState(/** @type {Request | null} */ (null));
  const [report, setReport] = useState("");
  // A removed dialog may report its end when the next one is already open.
  const closeOf = (/** @type {Request} */ ended) => (/** @type {string} */ text) => {
    setRequest((current) => (current === ended ? null : current));
    if (text) setReport(text);
  };
  const elements = html`
    ${request && html`<${ConfirmDialog} key=${request.title} request=${request} onClose=${closeOf(request)} />`}
    ${report && html`<${Toast} text=${report} onDone=${() => setReport("")} />`}
  `;
  return { confirm: setRequest, elements };
}
