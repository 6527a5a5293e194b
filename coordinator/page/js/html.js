// Preact with htm's templates, so that components need no build step. Values in a template become
// text nodes and properties: no module of the page parses a text as HTML.
import { h, render, Fragment } from "../vendor/preact-11.2.0.js";
import htm from "../vendor/htm-3.1.1.js";

export const html = htm.bind(h);
export { h, render, Fragment };
export { useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "../vendor/preact-hooks-11.2.0.js";
