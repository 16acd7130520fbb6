// The page: which view is shown follows from the address.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { Execution } from "./execution.js";
import { List } from "./list.js";

function shown() {
  const [, kind, id] = location.hash.split("/");
  if (kind !== "executions" || !id) return null;
  try {
    return decodeURIComponent(id);
  } catch {
    // Not written by us: let the server say that there is no such thing.
    return id;
  }
}

function Page() {
  const [id, setId] = useState(shown());
  const [live, setLive] = useState(false);
  useEffect(() => {
    const follow = () => { setLive(false); setId(shown()); };
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  useEffect(() => { document.title = id ? `${id} · Rune` : "Rune"; }, [id]);
  return html`
    <header><h1><a href="#/"><img src="/web/rune.svg" alt="" /> Rune</a></h1>
      <span class=${"live" + (live ? " on" : "")}>${live ? "live" : "not connected"}</span></header>
    <main>${id ? html`<${Execution} key=${id} id=${id} onState=${setLive} />` : html`<${List} onState=${setLive} />`}</main>`;
}

render(html`<${Page} />`, document.getElementById("page"));
