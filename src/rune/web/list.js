// The list of executions, live.

import { html, useEffect, useMemo, useState } from "./vendor/preact.js";
import { at, get } from "./api.js";
import { follow } from "./live.js";
import { duration, short, when } from "./words.js";

const STATUSES = ["pending", "running", "paused", "completed", "failed", "halted"];

export function List({ onState }) {
  const [known, setKnown] = useState(new Map());
  const [status, setStatus] = useState("");
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState("");

  useEffect(() => follow("/api/live", {
    snapshot: (data) => setKnown(new Map(data.executions.map((one) => [one.id, one]))),
    change: (data) => setKnown((before) => {
      const after = new Map(before);
      for (const one of data.executions) after.set(one.id, one);
      for (const id of data.gone || []) after.delete(id);
      return after;
    }),
    state: onState,
    refused: () => setProblem("The live stream was refused; reload the page."),
  }), []);

  // A filter asks the history, which knows more than what is live.
  useEffect(() => {
    if (!status && !text) {
      setFound(null);
      return undefined;
    }
    let wanted = true;
    const timer = setTimeout(async () => {
      const query = new URLSearchParams({ limit: 100, ...(status && { status }), ...(text && { text }) });
      try {
        const page = await get(`${at("executions")}?${query}`);
        if (wanted) setFound(page.items);
      } catch (error) {
        if (wanted) setProblem(error.message);
      }
    }, 200);
    return () => { wanted = false; clearTimeout(timer); };
  }, [status, text, known]);

  const rows = useMemo(
    () => found || [...known.values()].sort((a, b) => (a.created_at < b.created_at ? 1 : -1)),
    [found, known],
  );
  return html`
    <div class="bar">
      <select aria-label="Status" value=${status} onChange=${(event) => setStatus(event.target.value)}>
        <option value="">every status</option>
        ${STATUSES.map((name) => html`<option key=${name}>${name}</option>`)}
      </select>
      <input type="search" placeholder="Find by name, id or error" value=${text}
        onInput=${(event) => setText(event.target.value)} />
    </div>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${rows.length ? html`
      <table>
        <thead><tr><th>Execution</th><th>Workflow</th><th>Status</th><th>Started by</th><th>Created</th><th>Took</th><th>Error</th></tr></thead>
        <tbody>${rows.map((one) => html`<${Row} key=${one.id} one=${one} />`)}</tbody>
      </table>` : html`<p class="empty">Nothing has run here yet. Start something:<br />
        <code>rune executions start --file workflow.json</code></p>`}
  `;
}

function Row({ one }) {
  const error = one.error?.message || one.reason || "";
  return html`<tr>
    <td><a class="mono" href=${"#/executions/" + encodeURIComponent(one.id)}>${one.id}</a></td>
    <td>${one.name}</td>
    <td class=${"status " + one.status}>${one.status}</td>
    <td class="soft">${one.trigger}</td>
    <td class="soft">${when(one.created_at)}</td>
    <td class="number">${duration(one.duration_ms)}</td>
    <td class="soft" title=${error}>${short(error)}</td>
  </tr>`;
}
