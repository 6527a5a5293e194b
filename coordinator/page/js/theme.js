// The theme: the system's preference, or the viewer's choice in local storage.
const KEY = "muster-theme";
const THEMES = ["system", "light", "dark"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
/** @type {Set<() => void>} */
const listeners = new Set();

function stored() {
  try {
    return localStorage.getItem(KEY) ?? "system";
  } catch {
    return "system"; // storage is disabled
  }
}

let chosen = THEMES.includes(stored()) ? stored() : "system";

function apply() {
  const isDark = chosen === "dark" || (chosen === "system" && dark.matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  for (const listener of listeners) listener();
}

export function chosenTheme() {
  return chosen;
}

/** @param {string} theme */
export function chooseTheme(theme) {
  chosen = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // The choice holds until the page is closed.
  }
  apply();
}

/** @param {() => void} listener @returns {() => void} ends the calls */
export function onThemeChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/**
 * Returns the value of a CSS custom property in the current theme, for canvases.
 * @param {string} name
 */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

dark.addEventListener("change", apply);
apply();
