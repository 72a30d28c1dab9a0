/** The page that calls tools, reads resources and gets prompts. The URL contains the selection. */

import { get } from "../api.js";
import { Badge, Choice, Empty, PageHead, Tags, Waiting, html, useEffect, useMemo, useState } from "../components.js";
import { useDocument } from "../data.js";
import { link } from "../router.js";
import { Chooser, History, targetOf } from "./chooser.js";
import { REVISION } from "./wire.js";
import { Workbench } from "./workbench.js";

const KINDS = ["tool", "resource", "template", "prompt"];

export default function Call({ query, facts }) {
  const catalog = useDocument("catalog", { on: ["reload"] });
  const entries = useMemo(() => (catalog.data?.entries ?? []).filter((each) => KINDS.includes(each.kind)), [catalog.data]);
  const kind = KINDS.find((each) => query.get(each));
  const name = kind && query.get(kind);
  const view = query.get("view") ?? undefined;
  const entry = entries.find((each) => each.kind === kind && targetOf(each) === name);
  const views = catalog.data?.views ?? [];
  return html`<${PageHead} title="Call">
      ${kind && html`<a class="button narrow-only" href=${link("call", { view })}>‹ All tools</a>`}
      ${views.length > 0 && html`<${Choice} query=${query} name="view" label="View" all="everything" options=${views} />`}<//>
    <${Waiting} document=${catalog} />
    <div class=${`call ${kind ? "chosen" : ""}`}>
      ${catalog.data && html`<${Chooser} entries=${entries} kind=${kind} name=${name} view=${view} />`}
      <div class="target">${kind
        ? html`<${Target} key=${`${kind} ${name} ${view}`} kind=${kind} name=${name} entry=${entry} view=${view} facts=${facts}
          generation=${catalog.data?.generation} />`
        : catalog.data && html`<${Empty} title="Nothing selected">Select a tool, a resource or a prompt in the list. Press <kbd>/</kbd> to search.<//>`}</div>
      <${History} /></div>`;
}

/** The selected primitive with its definition. A URI without an entry can be read too. */
function Target({ kind, name, entry, view, facts, generation }) {
  const [known, setKnown] = useState(kind === "resource" ? { definition: { uri: name } } : {});
  useEffect(() => {
    if (kind === "resource") return undefined;
    const abort = new AbortController();
    get(`catalog/${kind}?name=${encodeURIComponent(name)}`, { signal: abort.signal })
      .then(({ definitions, entry: found, limits }) =>
        setKnown({ definition: definitions[REVISION], entry: found, mayBeTask: limits?.task || found.upstream }))
      .catch((error) => error.name !== "AbortError" && setKnown((old) => ({ ...old, error })));
    return () => abort.abort();
  }, [generation]);
  const problem = known.error && html`<p class="note bad" role="alert">${known.error.message}</p>`;
  if (problem && !known.definition) return problem;
  const about = known.entry ?? entry ?? {};
  if (!known.definition) {
    if (!known.entry) return html`<p class="waiting" role="status">Loading…</p>`;
    return html`<p class="note warn" role="status">Not available${about.reason ? `: ${about.reason}` : ""}</p>`;
  }
  return html`${problem}<section class="about"><h2>${known.definition.title ?? about.title ?? name}</h2>
      <${Badge}>${kind}<//> <${Tags} names=${about.tags} />
      ${known.definition.annotations?.destructiveHint && html`<${Badge} tone="bad">destructive<//>`}
      ${about.offered === false && html`<p class="note warn">Not available: ${about.reason}</p>`}
      <p class="help">${known.definition.description ?? about.description}</p></section>
    <${Workbench} kind=${kind} name=${name} definition=${known.definition}
      upstream=${about.upstream} mayBeTask=${kind === "tool" && known.mayBeTask} view=${view} facts=${facts} />`;
}
