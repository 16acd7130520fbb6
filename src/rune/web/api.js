// The master's API: JSON in and out, errors as problem documents.

export class Problem extends Error {
  constructor(document) {
    super(document.detail || document.title || `the server answered ${document.status}`);
    this.document = document;
  }
}

async function ask(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const response = await fetch(path, options);
  if (response.status === 401) {
    location.assign(`/login?next=${encodeURIComponent("/" + location.hash)}`);
  }
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = { status: response.status, title: text.slice(0, 200) };
  }
  if (!response.ok) throw new Problem(value || { status: response.status });
  return value;
}

export const get = (path) => ask("GET", path);
export const post = (path, body = {}) => ask("POST", path, body);
export const at = (...parts) => "/api/" + parts.map(encodeURIComponent).join("/");
