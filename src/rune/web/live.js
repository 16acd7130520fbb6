// A stream of server-sent events that comes back by itself, and says whether it is there.

export function follow(path, on) {
  const source = new EventSource(path);
  for (const name of ["snapshot", "change", "end"]) {
    source.addEventListener(name, (event) => on[name]?.(JSON.parse(event.data)));
  }
  // The server lets go of readers that are too slow: the browser comes back where it was.
  source.addEventListener("bye", () => on.state?.(false));
  source.addEventListener("open", () => on.state?.(true));
  source.addEventListener("error", () => {
    on.state?.(false);
    // A stream that was refused is not tried again by the browser.
    if (source.readyState === EventSource.CLOSED) on.refused?.();
  });
  return () => source.close();
}
