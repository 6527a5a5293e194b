// Preact with htm's templates, so that components need no build step. Values in a template become
// text nodes and properties: no module of the page parses a text as HTML.
import * as preact from "../vendor/preact-11.2.0.js";
import * as hooks from "../vendor/preact-hooks-11.2.0.js";
import htm from "../vendor/htm-3.1.1.js";

/** @type {(strings: TemplateStringsArray, ...values: any[]) => any} */
export const html = htm.bind(preact.h);
/** @type {(what: any, into: Element) => void} */
export const render = preact.render;

/** @type {<T>(initial: T | (() => T)) => [T, (next: T | ((old: T) => T)) => void]} */
export const useState = hooks.useState;
/** @type {<T>(initial: T) => {current: T}} */
export const useRef = hooks.useRef;
/** @type {<T>(make: () => T, inputs: any[]) => T} */
export const useMemo = hooks.useMemo;
/** @type {<T extends Function>(callback: T, inputs: any[]) => T} */
export const useCallback = hooks.useCallback;
/** @type {(effect: () => void | (() => void), inputs: any[]) => void} */
export const useEffect = hooks.useEffect;
/** @type {(effect: () => void | (() => void), inputs: any[]) => void} */
export const useLayoutEffect = hooks.useLayoutEffect;
