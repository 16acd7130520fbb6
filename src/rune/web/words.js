// Numbers and times as people read them.

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const parts = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = parts.findIndex(([size]) => seconds >= size);
  const [size, unit] = parts[first];
  const whole = Math.floor(seconds / size);
  const next = parts[first + 1];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${next[1]}` : `${whole} ${unit}`;
}

export const until = (iso, now = Date.now()) => {
  const left = Date.parse(iso) - now;
  return left > 0 ? `in ${duration(Math.ceil(left / 1000) * 1000)}` : "now";
};

export const when = (iso) => (iso ? new Date(iso).toLocaleString() : "");

export const short = (text, most = 120) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
