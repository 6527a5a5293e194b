// Submits a program from a form, a pasted command line, or an earlier job.
import { html, useEffect, useMemo, useState } from "../html.js";
import { ApiError, getJson, hasRole, postJson } from "../api.js";
import { quoted, recognize, splitWords, submitCommand } from "../command_line.js";
import { visit } from "../router.js";
import { clean, shorten } from "../text.js";
import { CopyButton, Panel } from "../components/parts.js";

const CHECK_AFTER_MS = 400;

/** @typedef {Record<string, string>} Form */
/** @type {Form} */
const EMPTY = {
  name: "", user: "", command: "", working_directory: "", output_directory: "", environment: "",
  nodes: "1", ranks_per_node: "1", gpus_per_rank: "-1", restarts_max: "3", priority: "0", spares: "0", min_nodes: "0", hang_after_seconds: "0",
};

/** @type {[string, Form][]} */
const PRESETS = [
  ["PyTorch, a rank per GPU of one 8-GPU node", { command: "python3 train.py", nodes: "1", ranks_per_node: "8", gpus_per_rank: "1" }],
  ["PyTorch, four 8-GPU nodes with a spare", { command: "python3 train.py", nodes: "4", ranks_per_node: "8", gpus_per_rank: "1", spares: "1" }],
  ["A program per node that uses all GPUs", { command: "python3 train.py", nodes: "4", ranks_per_node: "1", gpus_per_rank: "0" }],
  ["A test on CPUs with 2 ranks", { command: "python3 train.py --steps 10", nodes: "1", ranks_per_node: "2", gpus_per_rank: "0", restarts_max: "0" }],
];

/** @type {[string, string, string, string][]} field, label, type, hint */
const FIELDS = [
  ["name", "Name", "text", "letters, digits, . _ -"],
  ["user", "User", "text", "for the list of jobs"],
  ["command", "Command", "text", "started once per rank"],
  ["working_directory", "Working directory", "text", "absolute, present on every node"],
  ["output_directory", "Output folder", "text", "absolute, present on every node"],
  ["environment", "Environment", "text", "NAME=VALUE words; values with spaces in quotes"],
];
/** @type {[string, string, number, string][]} field, label, least, hint */
const NUMBERS = [
  ["nodes", "Nodes", 1, ""], ["ranks_per_node", "Ranks per node", 1, ""], ["gpus_per_rank", "GPUs per rank", -1, "-1: the slot's share, 0: shared"],
  ["restarts_max", "Restarts per cause", 0, ""], ["priority", "Priority", -1000000, "higher starts first"], ["spares", "Spare nodes", 0, ""],
  ["min_nodes", "Least nodes", 0, "0: only the full number"], ["hang_after_seconds", "Hang after, s", 0, "without output; 0: never"],
];

/** @param {Form} form @param {any} base a spec of an earlier job, or null */
export function specOf(form, base) {
  /** @type {any} */
  const spec = { ...(base ?? {}) };
  for (const [field] of NUMBERS) if (form[field] !== "" && Number.isFinite(Number(form[field]))) spec[field] = Number(form[field]);
  for (const field of ["name", "user", "working_directory", "output_directory"]) {
    if (form[field]) spec[field] = form[field];
    else delete spec[field];
  }
  if (base?.train_config) {
    for (const field of ["working_directory", "hang_after_seconds"]) delete spec[field];
  } else {
    spec.command = splitWords(form.command);
  }
  spec.environment = Object.fromEntries(splitWords(form.environment).map((word) => {
    const at = word.indexOf("=");
    if (at <= 0) throw new Error(`Environment: “${shorten(word, 40)}” is not NAME=VALUE.`);
    return [word.slice(0, at), word.slice(at + 1)];
  }));
  return spec;
}

/** Returns the form of an earlier job's spec. Values of its environment are secret. @param {any} spec @returns {Form} */
function formOf(spec) {
  /** @type {Form} */
  const form = { ...EMPTY };
  for (const field of Object.keys(EMPTY)) if (typeof spec[field] === "string" || typeof spec[field] === "number") form[field] = String(spec[field]);
  form.command = (spec.command ?? []).map(quoted).join(" ");
  form.environment = "";
  return form;
}

/** @param {Record<string, string>} environment */
function environmentText(environment) {
  return Object.entries(environment).map(([name, value]) => `${name}=${quoted(value)}`).join(" ");
}

/** Checks the job while one types. @param {any} spec @param {string} problem of the form itself */
function useCheck(spec, problem) {
  const [state, setState] = useState({ text: "", ok: false });
  const key = spec ? JSON.stringify(spec) : "";
  useEffect(() => {
    if (problem || !spec) {
      setState({ text: problem, ok: false });
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      postJson("jobs/check", { spec }, abort.signal).then(() => setState({ text: "", ok: true })).catch((error) => {
        if (!abort.signal.aborted) setState({ text: error.message, ok: false });
      });
    }, CHECK_AFTER_MS);
    setState((old) => ({ ...old, ok: false }));
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [key, problem]);
  return state;
}

/** @param {{onProgram: (spec: any) => void}} props */
function PastedLine({ onProgram }) {
  const [line, setLine] = useState("");
  const [result, setResult] = useState(/** @type {any} */ (null));
  const [error, setError] = useState("");
  function read(/** @type {string} */ text) {
    setLine(text);
    setError("");
    setResult(null);
    if (!text.trim()) return;
    try {
      const found = recognize(text);
      setResult(found);
      if (found.kind === "program") onProgram(found.spec);
    } catch (problem) {
      setError(/** @type {Error} */ (problem).message);
    }
  }
  const command = result?.kind === "config" ? result.command : "";
  return html`<div class="field"><label for="pasted">Pasted command line</label>
    <textarea id="pasted" rows="3" spellcheck="false" value=${line} placeholder="torchrun --nproc-per-node 8 train.py --lr 3e-4"
      onInput=${(/** @type {any} */ event) => read(event.target.value)}></textarea>
    <span class="hint">A program, torchrun, or a line of MaxText, Pax or AXLearn.</span>
    ${error && html`<p class="notice bad" role="alert">${clean(error)}</p>`}
    ${result?.kind === "program" && html`<p class="notice good" role="status">Recognized as a program; the form is filled in.${result.ignored.length > 0 && html` Without effect here: <code>${clean(result.ignored.join(", "))}</code>`}</p>`}
    ${command && html`<div class="notice" role="status"><p>This is a config of ${result.dialect}. Its files are on your machine, so the command line translates and checks it there:</p>
      <div class="command-line"><code>${clean(command)}</code><${CopyButton} text=${command} /></div></div>`}
  </div>`;
}

/** @param {{query: URLSearchParams}} props */
export function SubmitPage({ query }) {
  const [form, setForm] = useState(EMPTY);
  const [base, setBase] = useState(/** @type {any} */ (null));
  const [from, setFrom] = useState(query.get("from") ?? "");
  const [loadError, setLoadError] = useState("");
  const [report, setReport] = useState("");
  const [busy, setBusy] = useState(false);
  const change = (/** @type {Form} */ part) => setForm((old) => ({ ...old, ...part }));
  const { spec, problem } = useMemo(() => {
    try {
      return { spec: specOf(form, base), problem: !base?.train_config && !form.command.trim() ? "Command: enter the program and its arguments." : "" };
    } catch (error) {
      return { spec: null, problem: /** @type {Error} */ (error).message };
    }
  }, [form, base]);
  const mayAct = hasRole("submitter");
  const check = useCheck(mayAct ? spec : null, problem);

  async function loadJob(/** @type {string} */ id) {
    setLoadError("");
    try {
      const job = await getJson(`jobs/${Number(id)}?ranks=0`);
      const { environment, smaller: _, ...rest } = job.spec;
      // The prediction and the smaller sizes belong to the numbers of the earlier job.
      for (const field of Object.keys(rest)) if (field.startsWith("planned_")) delete rest[field];
      setBase(rest);
      setForm(formOf(job.spec));
      const notes = [];
      if (Object.keys(environment ?? {}).length > 0) notes.push(`The environment of job ${id} is secret: enter ${Object.keys(environment).map((name) => shorten(name, 40)).join(", ")} again if the job needs them.`);
      if (job.spec.gpus_per_rank === undefined) notes.push(`The GPUs per rank of job ${id} are not known here: check the field.`);
      setLoadError(notes.join(" "));
    } catch (error) {
      setLoadError(/** @type {ApiError} */ (error).message);
    }
  }
  useEffect(() => {
    if (from) loadJob(from);
  }, []);

  /** Fills in the form from a pasted line, which lacks some fields. @param {any} found */
  function takeProgram(found) {
    setBase(null);
    setForm((old) => ({
      ...formOf(found),
      name: found.name ?? old.name,
      user: old.user,
      output_directory: found.output_directory ?? old.output_directory,
      working_directory: found.working_directory ?? old.working_directory,
      environment: environmentText(found.environment),
    }));
  }

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    setReport("");
    try {
      const job = await postJson("jobs", { spec, request_id: requestId });
      visit(`#/jobs/${job.id}`);
    } catch (error) {
      setReport(/** @type {Error} */ (error).message);
      setBusy(false);
    }
  }
  // A repeated click after a lost answer must not start a second job.
  const requestId = useMemo(() => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join(""), [JSON.stringify(spec)]);
  const command = spec ? (base?.train_config ? "muster submit --job-file job.json" : submitCommand(spec)) : "";
  const text = (/** @type {string[]} */ [field, label, type, hint]) => html`<div class=${`field ${field}`} key=${field}><label for=${field}>${label}</label>
    <input id=${field} type=${type} spellcheck="false" value=${form[field]} onInput=${(/** @type {any} */ event) => change({ [field]: event.target.value })} /><span class="hint">${hint}</span></div>`;
  const fields = FIELDS.filter(([field]) => !(base?.train_config && ["command", "working_directory"].includes(field)));
  return html`<h1>Submit a job</h1>
    ${!mayAct && html`<p class="notice warn">This needs the role submitter. You can compose the command here and run it with another token.</p>`}
    <div class="columns">
      <div class="wide-5"><${Panel} title="Begin with"><div class="body form">
        <div class="field"><label for="preset">Preset</label><select id="preset" onChange=${(/** @type {any} */ event) => {
          const preset = PRESETS[Number(event.target.value)];
          if (preset) {
            setBase(null);
            setForm((old) => ({ ...EMPTY, name: old.name, user: old.user, output_directory: old.output_directory, working_directory: old.working_directory, ...preset[1] }));
          }
        }}><option value="">choose…</option>${PRESETS.map(([title], i) => html`<option key=${title} value=${i}>${title}</option>`)}</select></div>
        <div class="field"><label for="from">An earlier job</label><div class="row">
          <input id="from" class="narrow" type="number" min="1" value=${from} onInput=${(/** @type {any} */ event) => setFrom(event.target.value)} />
          <button type="button" class="button" disabled=${!from} onClick=${() => loadJob(from)}>Load</button></div><span class="hint">its number; also for jobs of Muster's trainer</span></div>
        ${loadError && html`<p class="notice warn" role="status">${clean(loadError)}</p>`}
        <${PastedLine} onProgram=${takeProgram} />
      </div><//></div>
      <div class="wide-7"><${Panel} title="Job"><form class="body form" onSubmit=${submit}>
        ${base?.train_config && html`<p class="notice">The train config is that of job ${from}; change its other fields here.</p>`}
        ${fields.map(text)}
        <div class="numbers">${NUMBERS.map(([field, label, least, hint]) => html`<div class="field" key=${field}><label for=${field}>${label}</label>
          <input id=${field} type="number" min=${least} value=${form[field]}
            onInput=${(/** @type {any} */ event) => change({ [field]: event.target.value })} /><span class="hint">${hint}</span></div>`)}</div>
        <div class="check" role="status">
          ${check.ok ? html`<p class="notice good">The coordinator would accept this job.</p>` : check.text && html`<p class="notice warn">
          ${clean(check.text)}</p>`}</div>
        ${command && html`<div class="field"><span class="label">The same on a terminal</span><div class="command-line"><code>${clean(command)}</code><${CopyButton} text=${command} />
          ${base?.train_config && html`<${CopyButton} text=${JSON.stringify(jobFile(spec), null, 2)} label="Copy job.json" />`}</div></div>`}
        ${report && html`<p class="notice bad" role="alert">${clean(report)}</p>`}
        <div class="row"><button class="button main" disabled=${!mayAct || !check.ok || busy}>${busy ? "Submitting…" : "Submit"}</button></div>
      </form><//></div>
    </div>`;
}

/** Returns the fields that `muster submit --job-file` reads. @param {any} spec */
function jobFile(spec) {
  const { train_config: config, ...rest } = spec;
  return config ? { ...rest, train_config_json: JSON.stringify(config) } : rest;
}
