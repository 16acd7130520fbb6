// A workflow as a drawing: boxes and arrows, with what happens in them.

import { html, useMemo } from "./vendor/preact.js";
import { Graph, layout } from "./vendor/dagre.js";
import { short, until } from "./words.js";

const WIDTH = 170;
const HEIGHT = 52;
const MARGIN = 24;
const SHOWN = ["running", "waiting", "success", "failed"];

// What the box as a whole is at: the worst and the liveliest first.
export function state(counts) {
  if (!counts) return "";
  for (const name of ["running", "failed", "waiting", "success"]) if (counts[name]) return name;
  return "";
}

// An id may be a name that every object has, such as `constructor`.
const key = (id) => `=${id}`;

function placed(graph) {
  const drawing = new Graph({ multigraph: true });
  drawing.setGraph({ rankdir: "LR", nodesep: 28, ranksep: 56, marginx: MARGIN, marginy: MARGIN });
  drawing.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) drawing.setNode(key(node.id), { width: WIDTH, height: HEIGHT });
  for (const edge of graph.edges) drawing.setEdge(key(edge.source), key(edge.target), {}, edge.id);
  layout(drawing);
  return drawing;
}

export function Drawing({ graph, counts, chosen, onChoose, now }) {
  // The places depend on the shape alone: what happens moves nothing.
  const drawing = useMemo(() => placed(graph), [graph]);
  const { width, height } = drawing.graph();
  return html`<div class="graph"><svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`}
      role="group" aria-label="The workflow's graph">
    <defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 0L8 4L0 8z" fill="currentColor" class="soft" /></marker></defs>
    ${graph.edges.map((edge) => html`<${Arrow} key=${edge.id} edge=${edge}
      points=${drawing.edge(key(edge.source), key(edge.target), edge.id).points} />`)}
    ${graph.nodes.map((node) => html`<${Box} key=${node.id} node=${node} place=${drawing.node(key(node.id))}
      counts=${Object.hasOwn(counts, node.id) ? counts[node.id] : undefined} chosen=${chosen === node.id} onChoose=${onChoose} now=${now} />`)}
  </svg></div>`;
}

function Arrow({ edge, points }) {
  const [first, ...rest] = points;
  const path = `M${first.x} ${first.y}` + rest.map((point) => `L${point.x} ${point.y}`).join("");
  const middle = points[Math.floor(points.length / 2)];
  const said = edge.label || (edge.port === "out" ? "" : edge.port);
  return html`<g>
    <path class=${"edge" + (edge.port === "error" ? " error" : "")} d=${path} marker-end="url(#tip)" />
    ${said && html`<text class="soft" x=${middle.x} y=${middle.y - 5} text-anchor="middle">${short(said, 18)}</text>`}
  </g>`;
}

function Box({ node, place, counts, chosen, onChoose, now }) {
  const at = state(counts);
  const left = place.x - WIDTH / 2;
  const top = place.y - HEIGHT / 2;
  const numbers = SHOWN.filter((name) => counts?.[name]);
  const choose = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onChoose(node.id);
  };
  return html`<g class=${`node ${at}${chosen ? " chosen" : ""}`} data-node=${node.id} tabindex="0"
      role="button" aria-pressed=${chosen ? "true" : "false"} onClick=${() => onChoose(node.id)} onKeyDown=${choose}>
    <title>${node.name} (${node.type})</title>
    <rect class="box" x=${left} y=${top} width=${WIDTH} height=${HEIGHT} rx="8" />
    <text x=${left + 10} y=${top + 20}>${short(node.name, 22)}</text>
    <text class="soft" x=${left + 10} y=${top + 38}>
      ${counts?.resume_at && at === "waiting" ? until(counts.resume_at, now) : numbers.length ? numbers.map((name, index) => html`
        <tspan class=${"count " + name} dx=${index ? 8 : 0}>${counts[name].toLocaleString()} ${name}</tspan>`) : node.type}
    </text>
  </g>`;
}
