// Texts of users and programs (job names, reasons, log lines) may contain anything. These functions
// make them harmless to read: a terminal sequence or a mark that reverses the direction of a line
// becomes visible or is removed. The browser receives the result as a text node.

// Colours and cursor movements of terminals, hyperlinks and titles.
const TERMINAL_SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\^_])/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// Marks that change the order of characters or are invisible.
const INVISIBLE = /[\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
// More than any field of the API allows; a longer text would slow down the layout.
const SHOWN_CHARACTERS_MAX = 20000;

/** @param {number} code */
function visible(code) {
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

/**
 * Returns the text without terminal sequences and with other invisible characters made visible.
 * @param {unknown} value
 * @returns {string}
 */
export function clean(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (text.length > SHOWN_CHARACTERS_MAX) text = text.slice(0, SHOWN_CHARACTERS_MAX) + "…";
  return text
    .replace(TERMINAL_SEQUENCE, "")
    .replace(CONTROL, (found) => visible(found.charCodeAt(0)))
    .replace(INVISIBLE, (found) => visible(found.charCodeAt(0)));
}

/**
 * Like clean(), on one line.
 * @param {unknown} value
 */
export function cleanLine(value) {
  return clean(value).replace(/[\t\n]+/g, " ");
}

/**
 * Returns the first characters of a text, for titles and labels.
 * @param {unknown} value
 * @param {number} charactersMax
 */
export function shorten(value, charactersMax) {
  const text = cleanLine(value);
  return text.length > charactersMax ? text.slice(0, charactersMax - 1) + "…" : text;
}

/**
 * Returns "0-3, 7, 9-12" for ascending numbers, cut after `rangesMax` ranges.
 * @param {number[]} ranks
 * @param {number} rangesMax
 */
export function rankRanges(ranks, rangesMax = 12) {
  const parts = [];
  for (let i = 0; i < ranks.length;) {
    let j = i;
    while (j + 1 < ranks.length && ranks[j + 1] === ranks[j] + 1) ++j;
    if (parts.length === rangesMax) return `${parts.join(", ")}, …`;
    parts.push(i === j ? `${ranks[i]}` : `${ranks[i]}-${ranks[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}

/**
 * Returns whether the haystack contains every word of the query, ignoring case.
 * @param {string} haystack in lower case
 * @param {string[]} words in lower case
 */
export function matchesWords(haystack, words) {
  return words.every((word) => haystack.includes(word));
}

/** @param {string} query */
export function wordsOf(query) {
  return query.toLowerCase().split(/\s+/).filter(Boolean);
}
