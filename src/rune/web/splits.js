// Fan-outs: a bar of counts, and every item as a pixel on a canvas.

import { html, useEffect, useRef } from "./vendor/preact.js";

const PARTS = ["succeeded", "failed", "skipped", "running"];
const CELL = 6;

// The states of a split's items, kept as one byte each and changed in runs.
export class Items {
  static CODES = ["pending", "running", "succeeded", "failed", "skipped"];

  constructor() {
    this.states = new Uint8Array(0);
  }

  static of(states) {
    const items = new Items();
    let first = 0;
    for (const [state, count] of states) {
      items.put([[first, state, count]]);
      first += count;
    }
    return items;
  }

  put(runs) {
    for (const [first, state, count] of runs) {
      if (first + count > this.states.length) {
        const grown = new Uint8Array(Math.max(first + count, this.states.length * 2));
        grown.set(this.states);
        this.states = grown;
      }
      this.states.fill(Items.CODES.indexOf(state), first, first + count);
    }
    return this;
  }
}

export function Splits({ splits, items, version, looked, onLook }) {
  return html`<div class="splits">${splits.map((split) => html`
    <${Split} key=${split.barrier} split=${split} items=${items.get(split.barrier)} version=${version}
      looked=${looked.includes(split.barrier)} onLook=${onLook} />`)}</div>`;
}

function Split({ split, items, version, looked, onLook }) {
  const share = (name) => ({ width: `${split.total ? (100 * split[name]) / split.total : 0}%` });
  const done = split.succeeded + split.failed + split.skipped;
  return html`<section class="split" data-split=${split.node}>
    <h3>${split.node}${split.scope_item === null || split.scope_item === undefined ? "" : html` <span class="soft">in item ${split.scope_item}</span>`}
      <span class="soft">${done.toLocaleString()} of ${split.total.toLocaleString()}</span>
      ${split.failed > 0 && html`<span class="status failed">${split.failed.toLocaleString()} failed</span>`}
      ${split.skipped > 0 && html`<span class="soft">${split.skipped.toLocaleString()} skipped</span>`}
      <button onClick=${() => onLook(split.barrier)}>${looked ? "hide items" : "show items"}</button></h3>
    <${Share} parts=${PARTS.map((name) => [name, share(name).width])} />
    ${looked && html`<${Cells} items=${items} total=${split.total} version=${version} />`}
  </section>`;
}

// The policy of the page allows no inline styles; setting them one by one is not one.
function Share({ parts }) {
  const bar = useRef();
  useEffect(() => {
    parts.forEach(([, width], index) => { bar.current.children[index].style.width = width; });
  });
  return html`<div class="share" ref=${bar}>${parts.map(([name]) => html`<i key=${name} class=${name}></i>`)}</div>`;
}

function Cells({ items, total, version }) {
  const canvas = useRef();
  useEffect(() => {
    const area = canvas.current;
    const width = area.clientWidth || 800;
    const columns = Math.max(1, Math.floor(width / CELL));
    const rows = Math.max(1, Math.ceil(total / columns));
    // As many pixels as cells: the browser makes them larger.
    area.width = columns;
    area.height = Math.min(rows, 2000);
    area.style.height = `${Math.min(rows, 2000) * CELL}px`;
    area.style.imageRendering = "pixelated";
    const style = getComputedStyle(document.documentElement);
    const probe = document.createElement("canvas").getContext("2d");
    const names = ["--pending", "--running", "--success", "--failed", "--skipped"];
    const colours = names.map((name) => rgb(probe, resolved(style, name)));
    const image = new ImageData(columns, area.height);
    const states = items ? items.states : new Uint8Array(0);
    for (let index = 0; index < Math.min(total, columns * area.height); index += 1) {
      image.data.set(colours[states[index] || 0], index * 4);
    }
    area.getContext("2d").putImageData(image, 0, 0);
  }, [items, total, version]);
  return html`<canvas ref=${canvas} role="img" aria-label="The state of every item"></canvas>`;
}

function resolved(style, name) {
  const sample = document.createElement("i");
  sample.style.color = style.getPropertyValue(name).trim();
  document.body.append(sample);
  const colour = getComputedStyle(sample).color;
  sample.remove();
  return colour;
}

function rgb(context, colour) {
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}
