// Command lines: split as a shell does without expanding anything, recognized, and composed.

/**
 * Returns the words of a command line. Backslashes at ends of lines join lines.
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

/** Returns the word as a shell reads it back. @param {string} word */
export function quoted(word) {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

const LAUNCHER_NUMBERS = { "--nproc-per-node": "ranks_per_node", "--nproc_per_node": "ranks_per_node", "--nnodes": "nodes" };

/**
 * @typedef {{kind: "program", command: string[], nodes?: number, ranks_per_node?: number, environment: Record<string, string>}
 *   | {kind: "config", dialect: string, words: string[]}} Recognized
 */

/**
 * Recognizes what a command line starts. Muster's own command translates configs of MaxText, Pax and
 * AXLearn, because they are files of the user's machine.
 * @param {string} line
 * @returns {Recognized}
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
    if (end < 0) return { kind: "config", dialect: "Muster", words: words.slice(2) };
    return ofMuster(words.slice(2, end), words.slice(end + 1), environment);
  }
  if (/(^|\/)torchrun$/.test(words[0])) return ofLauncher(words.slice(1), environment);
  if (words.some((word) => /MaxText(\/|\.)train(\.py)?$|maxtext/i.test(word))) return { kind: "config", dialect: "MaxText", words };
  if (words.some((word) => word.startsWith("--fdl"))) return { kind: "config", dialect: "Pax", words };
  if (words.some((word) => word.startsWith("--module=")) && words.some((word) => word.startsWith("--config="))) return { kind: "config", dialect: "AXLearn", words };
  return { kind: "program", command: words, environment };
}

/** @param {string[]} words @param {Record<string, string>} environment @returns {Recognized} */
function ofLauncher(words, environment) {
  /** @type {any} */
  const found = { kind: "program", command: [], environment };
  for (let i = 0; i < words.length; ++i) {
    const [flag, inline] = words[i].split("=", 2);
    if (!flag.startsWith("-")) {
      // torchrun starts scripts with Python.
      found.command = ["python3", ...words.slice(i)];
      return found;
    }
    const field = LAUNCHER_NUMBERS[/** @type {keyof typeof LAUNCHER_NUMBERS} */ (flag)];
    const hasValue = !["--standalone", "-m", "--module", "--no-python", "--no_python"].includes(flag);
    const value = inline ?? (hasValue ? words[++i] : undefined);
    if (flag === "-m" || flag === "--module") {
      found.command = ["python3", "-m", ...words.slice(i + 1)];
      return found;
    }
    if (field && /^\d+$/.test(value ?? "")) found[field] = Number(value);
  }
  throw new Error("torchrun's command line has no script.");
}

const MUSTER_NUMBERS = { "--ranks": "ranks_per_node", "--ranks-per-node": "ranks_per_node", "--nodes": "nodes" };

/** @param {string[]} options @param {string[]} command @param {Record<string, string>} environment @returns {Recognized} */
function ofMuster(options, command, environment) {
  /** @type {any} */
  const found = { kind: "program", command, environment };
  for (let i = 0; i < options.length; ++i) {
    const [flag, inline] = options[i].split("=", 2);
    const field = MUSTER_NUMBERS[/** @type {keyof typeof MUSTER_NUMBERS} */ (flag)];
    if (field) found[field] = Number(inline ?? options[++i]);
  }
  return found;
}

/** @type {[string, string, unknown][]} field, flag, value that needs no flag */
const FLAGS = [
  ["name", "--name", ""], ["nodes", "--nodes", 1], ["ranks_per_node", "--ranks-per-node", 1], ["gpus_per_rank", "--gpus-per-rank", -1],
  ["restarts_max", "--restarts", undefined], ["priority", "--priority", 0], ["spares", "--spares", 0], ["min_nodes", "--min-nodes", 0],
  ["hang_after_seconds", "--hang-after", 0], ["working_directory", "--working-directory", ""], ["output_directory", "--output", ""],
];

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
