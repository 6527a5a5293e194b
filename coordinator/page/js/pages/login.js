// The login with a token. The coordinator answers with a cookie that no script can read.
import { html, useState } from "../html.js";
import { login } from "../api.js";
import { clean } from "../text.js";

export function Login() {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    setBusy(true);
    setError("");
    try {
      await login(String(new FormData(form).get("token") ?? "").trim());
    } catch (problem) {
      setError(/** @type {Error} */ (problem).message);
      setBusy(false);
    }
  }

  return html`<form class="panel login" onSubmit=${submit}>
    <div class="body">
      <h1>Log in</h1>
      <p class="muted">This coordinator requires a token. Its role decides what you may do: a viewer reads, a submitter also submits and cancels jobs, an admin also excludes nodes.</p>
      <div class="field">
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="current-password" required aria-describedby=${error ? "login-error" : undefined} />
      </div>
      ${error && html`<p id="login-error" class="notice bad" role="alert">${clean(error)}</p>`}
      <button class="button main" disabled=${busy}>${busy ? "Checking…" : "Log in"}</button>
    </div>
  </form>`;
}
