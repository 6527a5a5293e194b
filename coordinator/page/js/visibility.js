// Connections of hidden tabs are closed: a browser has six for all tabs of a host, and a stream of
// events keeps one.
const HIDDEN_MS_MAX = 5000;

/**
 * Opens a connection while the tab is visible. A tab that is hidden for a moment keeps it.
 * @param {{open: () => void, close: () => void}} connection
 * @returns {() => void} closes the connection for good
 */
export function whileVisible({ open, close }) {
  let isOpen = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  function update() {
    clearTimeout(timer);
    if (document.hidden) {
      timer = setTimeout(shut, HIDDEN_MS_MAX);
    } else if (!isOpen) {
      isOpen = true;
      open();
    }
  }
  function shut() {
    if (isOpen) close();
    isOpen = false;
  }
  document.addEventListener("visibilitychange", update);
  update();
  return () => {
    document.removeEventListener("visibilitychange", update);
    clearTimeout(timer);
    shut();
  };
}
