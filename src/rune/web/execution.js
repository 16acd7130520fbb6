// One execution: its graph, its fan-outs, what a node did, and what one may do with it.

import { html, useEffect, useRef, useState } from "./vendor/preact.js";
import { at, get, post } from "./api.js";
import { Drawing } from "./graph.js";
import { follow } from "./live.js";
import { Items, Splits } from "./splits.js";
import { duration, short, until, when } from "./words.js";

const ENDED = ["completed", "failed", "halted"];

export function Execution({ id, onState }) {
  const [about, setAbout] = useState(null);
  const [graph, setGraph] = useState(null);
  const [live, setLive] = useState({ nodes: {}, splits: new Map(), head: null, version: 0 });
  const [looked, setLooked] = useState([]);
  const [chosen, setChosen] = useState(null);
  const [problem, setProblem] = useState("");
  const [now, setNow] = useState(Date.now());
  const items = useRef(new Map());

  const read = async () => {
    try {
      const [one, drawing] = await Promise.all([get(at("executions", id)), get(at("executions", id, "graph"))]);
      setAbout(one);
      setGraph(drawing);
    } catch (error) {
      setProblem(error.message);
    }
  };
  useEffect(() => { read(); }, [id]);

  useEffect(() => {
    const query = looked.map((barrier) => "scope=" + encodeURIComponent(barrier)).join("&");
    const absorb = (data, whole) => setLive((before) => {
      const splits = whole ? new Map() : new Map(before.splits);
      for (const split of data.splits) splits.set(split.barrier, split);
      for (const [barrier, scope] of Object.entries(data.scopes)) {
        if (scope.states) items.current.set(barrier, Items.of(scope.states));
        else items.current.set(barrier, (items.current.get(barrier) || new Items()).put(scope.runs));
      }
      const nodes = whole ? data.nodes : { ...before.nodes, ...data.nodes };
      return { nodes, splits, head: data.execution, version: before.version + 1 };
    });
    const stop = follow(at("executions", id, "live") + (query ? "?" + query : ""), {
      snapshot: (data) => absorb(data, true),
      change: (data) => absorb(data, false),
      end: () => { stop(); read(); },
      state: onState,
      // Why, the reading above may know better.
      refused: () => setProblem((known) => known || "The live stream was refused; reload the page."),
    });
    return stop;
  }, [id, looked]);

  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);

  if (problem && !about) return html`<p class="problem" role="alert">${problem}</p>`;
  if (!about || !graph) return html`<p class="empty">…</p>`;
  const head = live.head || about;
  const look = (barrier) => setLooked(
    looked.includes(barrier) ? looked.filter((other) => other !== barrier) : [...looked, barrier].slice(-16),
  );
  return html`
    <${Heading} about=${about} head=${head} now=${now} />
    <${Verbs} id=${id} status=${head.status} onDone=${read} onProblem=${setProblem} />
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${head.error && html`<p class="problem">${head.error.node ? head.error.node + ": " : ""}${head.error.message} <span class="mono">${head.error.code}</span></p>`}
    <${Waits} nodes=${live.nodes} now=${now} />
    <${Drawing} graph=${graph} counts=${live.nodes} chosen=${chosen} onChoose=${setChosen} now=${now} />
    <${Splits} splits=${[...live.splits.values()]} items=${items.current} version=${live.version}
      looked=${looked} onLook=${look} />
    ${chosen && html`<${NodePanel} id=${id} node=${chosen} version=${ENDED.includes(head.status)} />`}
  `;
}

function Heading({ about, head, now }) {
  const took = head.duration_ms ?? (head.started_at ? now - Date.parse(head.started_at) : null);
  return html`
    <h2>${about.name} <span class=${"status " + head.status} data-status>${head.status}</span></h2>
    <div class="facts">
      <div><span>id</span><span class="mono">${about.id}</span></div>
      <div><span>started by</span>${about.trigger}</div>
      <div><span>created</span>${when(about.created_at)}</div>
      <div><span>took</span>${duration(took)}</div>
      ${about.parent && html`<div><span>from</span><a class="mono" href=${"#/executions/" + about.parent}>${about.parent}</a></div>`}
      ${about.children.map((child) => html`<div key=${child.id}><span>${child.trigger}</span><a class="mono" href=${"#/executions/" + child.id}>${child.id}</a></div>`)}
      ${head.reason && html`<div><span>reason</span>${head.reason}</div>`}
    </div>`;
}

function Verbs({ id, status, onDone, onProblem }) {
  const [busy, setBusy] = useState(false);
  const act = (verb, body) => async () => {
    setBusy(true);
    onProblem("");
    try {
      const made = await post(at("executions", id, verb), body);
      if (made.id !== id) location.hash = "#/executions/" + encodeURIComponent(made.id);
      else await onDone();
    } catch (error) {
      onProblem(error.message);
    } finally {
      setBusy(false);
    }
  };
  const ended = ENDED.includes(status);
  return html`<div class="bar">
    ${!ended && html`<button disabled=${busy} onClick=${act("cancel")}>cancel</button>`}
    ${status === "running" && html`<button disabled=${busy} onClick=${act("pause")}>pause</button>`}
    ${status === "paused" && html`<button disabled=${busy} onClick=${act("resume")}>resume</button>`}
    ${ended && status !== "completed" && html`<button disabled=${busy} onClick=${act("redrive")}>redrive what failed</button>`}
  </div>`;
}

function Waits({ nodes, now }) {
  const waiting = Object.entries(nodes).filter(([, counts]) => counts.waiting && counts.resume_at);
  return waiting.map(([node, counts]) => html`<p key=${node} class="status waiting" data-wait=${node}>
    ${node} waits, and goes on ${until(counts.resume_at, now)}</p>`);
}

function NodePanel({ id, node, version }) {
  const [steps, setSteps] = useState(null);
  const [detail, setDetail] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let wanted = true;
    setDetail(null);
    get(`${at("executions", id, "steps")}?node=${encodeURIComponent(node)}&limit=50`)
      .then((page) => wanted && setSteps(page.items))
      .catch((error) => wanted && setProblem(error.message));
    return () => { wanted = false; };
  }, [id, node, version]);
  const open = async (step) => {
    try {
      setDetail(await get(at("executions", id, "steps", step)));
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<section class="panel"><h2>${node}</h2>
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${steps && (steps.length ? html`<table><tbody>${steps.map((step) => html`
      <tr key=${step.step}><td><button onClick=${() => open(step.step)}>look</button></td>
        <td class=${"status " + step.status}>${step.status}</td>
        <td>${step.lineage.map((frame) => `${frame.split} ${frame.label || frame.index}`).join(" › ")}</td>
        <td class="number">${duration(step.duration_ms)}</td>
        <td class="soft">${step.error ? short(step.error.message) : ""}</td></tr>`)}</tbody></table>`
    : html`<p class="soft">It has not run.</p>`)}
    ${detail && html`<${Detail} detail=${detail} />`}
  </section>`;
}

function Detail({ detail }) {
  const shown = ["input", "parameters", "output", "error"].filter((name) => detail[name] !== null && detail[name] !== undefined);
  return shown.map((name) => html`<div key=${name}><span class="soft">${name}</span>
    <pre>${short(JSON.stringify(detail[name], null, 2), 20000)}</pre></div>`);
}
