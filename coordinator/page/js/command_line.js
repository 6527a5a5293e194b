// Command lines: split as a shell does without expanding anything, recognized, and composed.

// A shell would do more than start one program with these words.
const OPERATORS = ";&|<>()`";

/**
 * Returns the words of a command line. Backslashes at ends of lines join lines. Throws if a shell is
 * needed: for operators and variables outside single quotes.
 * @param {string} line
 * @returns {string[]}
 */
export function splitWords(line) {
  const words = [];
  let word = "";
  let isOpen = false;
  let quote = "";
  for (let i = 0; i < line.length; ++i) {
    const char = line[i];
    if (quote) {
      if (char === quote) quote = "";
      else if (quote === '"' && (char === "$" || char === "`")) throw shellError(char);
      else if (char === "\\" && quote === '"' && '"\\$`'.includes(line[i + 1] ?? "")) word += line[++i];
      else word += char;
    } else if (char === "'" || char === '"') {
      quote = char;
      isOpen = true;
    } else if (char === "\\") {
      const next = line[++i] ?? "";
      if (next !== "\n") {
        word += next;
        isOpen = true;
      }
    } else if (OPERATORS.includes(char) || char === "$") {
      throw shellError(char);
    } else if (/\s/.test(char)) {
      if (isOpen || word) words.push(word);
      word = "";
      isOpen = false;
    } else {
      word += char;
      isOpen = true;
    }
  }
  if (quote) throw new Error(`The quote ${quote} is not closed.`);
  if (isOpen || word) words.push(word);
  return words;
}

/** @param {string} char */
function shellError(char) {
  return new Error(`“${char}” needs a shell: quote it, or start the line as bash -c '…'.`);
}

/** Returns the word as a shell reads it back. @param {string} word */
export function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

/**
 * @typedef {object} Program
 * @property {"program"} kind
 * @property {Record<string, string | number | string[] | Record<string, string>>} spec fields of the job
 * @property {string[]} ignored options that have no effect here
 * @typedef {{kind: "config", dialect: string, command: string}} Config
 */

/** @type {[string, string, unknown][]} field, flag, value that needs no flag */
const FLAGS = [
  ["name", "--name", ""], ["nodes", "--nodes", 1], ["ranks_per_node", "--ranks-per-node", 1], ["gpus_per_rank", "--gpus-per-rank", -1],
  ["restarts_max", "--restarts", undefined], ["priority", "--priority", 0], ["spares", "--spares", 0], ["min_nodes", "--min-nodes", 0],
  ["hang_after_seconds", "--hang-after", 0], ["working_directory", "--working-directory", ""], ["output_directory", "--output", ""],
];
const FIELD_OF_FLAG = Object.fromEntries([...FLAGS.map(([field, flag]) => [flag, field]), ["--ranks", "ranks_per_node"]]);
const MUSTER_SWITCHES = ["--no-check", "--no-plan", "--follow", "-f", "--json"];
const LAUNCHERS = ["torch.distributed.run", "torch.distributed.launch"];
const LAUNCHER_SWITCHES = ["--standalone", "--run-path", "--run_path", "--use-env", "--use_env"];

/** @param {string} word */
function isTorchrun(word) {
  return /(^|\/)torchrun$/.test(word);
}

/**
 * Recognizes what a command line starts. Muster's own command translates configs of MaxText, Pax and
 * AXLearn, because they are files of the user's machine.
 * @param {string} line
 * @returns {Program | Config}
 */
export function recognize(line) {
  let words = splitWords(line);
  /** @type {Record<string, string>} */
  const environment = {};
  while (words.length > 0 && /^[A-Za-z_][A-Za-z0-9_]*=/.test(words[0])) {
    const [name, ...rest] = words[0].split("=");
    environment[name] = rest.join("=");
    words = words.slice(1);
  }
  if (words.length === 0) throw new Error("The command line is empty.");
  if (words[0] === "muster" && (words[1] === "run" || words[1] === "submit")) {
    const end = words.indexOf("--");
    return end < 0 ? configOf("Muster", words.slice(2), environment) : ofMuster(words.slice(2, end), words.slice(end + 1), environment);
  }
  if (isTorchrun(words[0])) return ofLauncher(words.slice(1), environment);
  const module = words.indexOf("-m");
  if (module >= 0 && LAUNCHERS.includes(words[module + 1])) return ofLauncher(words.slice(module + 2), environment);
  if (words.some((word) => /(^|\/)MaxText\/train\.py$/.test(word)) || (module >= 0 && /^maxtext\.(MaxText\.)?train$/i.test(words[module + 1] ?? ""))) return configOf("MaxText", words, environment);
  if (words.some((word) => word.startsWith("--fdl"))) return configOf("Pax", words, environment);
  if (words.some((word) => word.startsWith("--module=")) && words.some((word) => word.startsWith("--config="))) return configOf("AXLearn", words, environment);
  return { kind: "program", spec: { command: words, environment }, ignored: [] };
}

/** @param {string} dialect @param {string[]} words @param {Record<string, string>} environment @returns {Config} */
function configOf(dialect, words, environment) {
  const variables = Object.entries(environment).flatMap(([name, value]) => ["--env", `${name}=${value}`]);
  return { kind: "config", dialect, command: ["muster", "submit", ...words, ...variables].map(quoted).join(" ") };
}

/**
 * Reads torchrun's options up to the script.
 * @param {string[]} words @param {Record<string, string>} environment
 * @returns {Program}
 */
function ofLauncher(words, environment) {
  /** @type {Program["spec"]} */
  const spec = { environment };
  /** @type {string[]} */
  const ignored = [];
  let interpreter = ["python3"];
  for (let i = 0; i < words.length; ++i) {
    const [flag, inline] = splitOnce(words[i]);
    if (!flag.startsWith("-")) {
      spec.command = [...interpreter, ...words.slice(i)];
      return { kind: "program", spec, ignored };
    }
    const name = flag.replace(/_/g, "-");
    if (name === "-m" || name === "--module") interpreter = ["python3", "-m"];
    else if (name === "--no-python") interpreter = [];
    else if (LAUNCHER_SWITCHES.includes(flag)) ignored.push(flag);
    else {
      const value = inline ?? words[++i] ?? "";
      const field = name === "--nproc-per-node" ? "ranks_per_node" : name === "--nnodes" ? "nodes" : "";
      if (field && /^[1-9]\d*$/.test(value)) spec[field] = Number(value);
      else ignored.push(`${flag} ${value}`);
    }
  }
  throw new Error("torchrun's command line has no script.");
}

/** @param {string} word @returns {[string, string | undefined]} */
function splitOnce(word) {
  const at = word.indexOf("=");
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

/** @param {string[]} options @param {string[]} command @param {Record<string, string>} environment @returns {Program} */
function ofMuster(options, command, environment) {
  /** @type {any} */
  const spec = { command, environment };
  const ignored = [];
  for (let i = 0; i < options.length; ++i) {
    const [flag, inline] = splitOnce(options[i]);
    if (MUSTER_SWITCHES.includes(flag)) {
      ignored.push(flag);
      continue;
    }
    const value = inline ?? options[++i] ?? "";
    const field = FIELD_OF_FLAG[flag];
    const [name, content] = splitOnce(value);
    if (flag === "--env" && content !== undefined) environment[name] = content;
    else if (field) spec[field] = /^-?\d+$/.test(value) ? Number(value) : value;
    else ignored.push(`${flag} ${value}`);
  }
  return { kind: "program", spec, ignored };
}

/** Returns the `muster submit` command of a program. @param {any} spec */
export function submitCommand(spec) {
  const words = ["muster", "submit"];
  for (const [field, flag, omitted] of FLAGS) {
    const value = spec[field];
    if (value !== undefined && value !== null && value !== "" && value !== omitted) words.push(flag, String(value));
  }
  for (const [name, value] of Object.entries(spec.environment ?? {})) words.push("--env", `${name}=${value}`);
  return [...words, "--", ...(spec.command ?? [])].map(quoted).join(" ");
}
