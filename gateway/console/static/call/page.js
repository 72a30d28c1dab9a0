/** The page that calls tools, reads resources and gets prompts. Its state is in the URL, arguments in the fragment. */

import { get } from "../api.js";
import { Badge, Button, CopyButton, Empty, PageHead, Tags, Waiting, html, useEffect, useMemo, useRef, useState } from "../components.js";
import { useDocument } from "../data.js";
import { duration } from "../format.js";
import { link, navigate } from "../router.js";
import { problemsOf } from "./check.js";
import { commandOf, curlOf, fragmentOf, testOf } from "./copy.js";
import { Field } from "./form.js";
import { isObject, parse, stringify } from "./json.js";
import { Picker } from "./picker.js";
import { Question, Questions } from "./questions.js";
import { Explanation, Result } from "./result.js";
import { perform, post, send } from "./run.js";
import { initial } from "./schema.js";
import { REVISION, expand, variablesOf } from "./wire.js";

const KINDS = ["tool", "resource", "template", "prompt"];
const MOST_LINES = 500;
const LONGEST_TEXT = 100_000;
const PAUSE = 300;

export default function Call({ query, facts }) {
  const catalog = useDocument("catalog", { on: ["reload"] });
  const entries = useMemo(() => (catalog.data?.entries ?? []).filter((each) => KINDS.includes(each.kind)), [catalog.data]);
  const kind = KINDS.find((each) => query.get(each));
  const name = kind && query.get(kind);
  const view = query.get("view") ?? undefined;
  const entry = entries.find((each) => each.kind === kind && (kind === "resource" ? each.uri === name : each.name === name));
  const pick = (each) => navigate(link("call", { [each.kind]: each.kind === "resource" ? each.uri : each.name, view }));
  return html`<${PageHead} title="Call" /><${Waiting} document=${catalog} />
    <div class="call"><${Picker} entries=${entries} chosen=${name} onPick=${pick} />
    ${kind ? html`<${Target} key=${`${kind} ${name} ${view}`} kind=${kind} name=${name} entry=${entry} view=${view} facts=${facts} generation=${catalog.data?.generation} />`
      : html`<${Empty} title="Nothing is chosen">Choose a tool, a resource or a prompt above.<//>`}</div>`;
}

/** What is called: its definition first. A URI that no entry has is read all the same. */
function Target({ kind, name, entry, view, facts, generation }) {
  const [known, setKnown] = useState(kind === "resource" ? { definition: { uri: name } } : {});
  useEffect(() => {
    if (kind === "resource") return undefined;
    const abort = new AbortController();
    get(`catalog/${kind}?name=${encodeURIComponent(name)}`, { signal: abort.signal })
      .then(({ definitions, entry: found }) => setKnown({ definition: definitions[REVISION], entry: found }))
      .catch((error) => error.name !== "AbortError" && setKnown({ error }));
    return () => abort.abort();
  }, [generation]);
  if (known.error) return html`<p class="note bad" role="alert">${known.error.message}</p>`;
  if (!known.definition) return html`<p class="waiting" role="status">Loading…</p>`;
  const about = known.entry ?? entry ?? {};
  return html`<section class="about"><h2>${known.definition.title ?? about.title ?? name}</h2><${Badge}>${kind}<//> <${Tags} names=${about.tags} />
      ${known.definition.annotations?.destructiveHint && html`<${Badge} tone="bad">destructive<//>`}
      ${about.offered === false && html`<p class="note warn">Not on offer: ${about.reason}</p>`}
      <p class="help">${known.definition.description ?? about.description}</p></section>
    <${Workbench} kind=${kind} name=${name} definition=${known.definition} upstream=${about.upstream} view=${view} facts=${facts} />`;
}

const texts = (names, required, more) => ({
  type: "object", additionalProperties: false, required,
  properties: Object.fromEntries(names.map((name) => [name, { type: "string", maxLength: 1e6, ...more?.(name) }])),
});

/** For each kind: the schema of its arguments, and the request that they make. */
const REQUESTS = {
  tool: { method: "tools/call", schemaOf: ({ inputSchema }) => inputSchema, paramsOf: ({ name }, values) => ({ name, arguments: values }) },
  resource: { method: "resources/read", schemaOf: () => null, paramsOf: ({ uri }) => ({ uri }) },
  template: { method: "resources/read", schemaOf: ({ uriTemplate }) => texts(variablesOf(uriTemplate), []),
    paramsOf: ({ uriTemplate }, values) => ({ uri: expand(uriTemplate, values) }), reference: ({ uriTemplate }) => ({ type: "ref/resource", uri: uriTemplate }) },
  prompt: { method: "prompts/get", paramsOf: ({ name }, values) => ({ name, arguments: values }), reference: ({ name }) => ({ type: "ref/prompt", name }),
    schemaOf: ({ arguments: given = [] }) => texts(given.map((each) => each.name), given.filter((each) => each.required).map((each) => each.name),
      (name) => { const { title, description } = given.find((each) => each.name === name); return { title, description }; }) },
};

function Workbench({ kind, definition, upstream, view, facts }) {
  const { method, schemaOf, paramsOf, reference } = REQUESTS[kind];
  const schema = useMemo(() => schemaOf(definition), [definition]);
  const [draft, setDraft] = useState(() => first(schema));
  const [isTouched, setTouched] = useState(false);
  const [asTask, setAsTask] = useState(false);
  const [explanation, setExplanation] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const run = useRun();
  const { value, error } = draft;
  const params = paramsOf(definition, value);
  const problems = useProblems(kind === "tool" && definition.name, schema, value);
  const request = { method, params, view, schema: kind === "tool" ? schema : null };
  const begin = () => {
    setTouched(true);
    setAsking(false);
    setExplanation(null);
    run.begin(method, params, { view, schema: request.schema, asTask });
  };
  const call = () => {
    if (error || run.isRunning) return;
    if (definition.annotations?.destructiveHint === true && kind === "tool") setAsking(true);
    else begin();
  };
  const explain = async () => {
    setTouched(true);
    run.reset();
    setExplanation(await post("explain", stringify({ method, params })).catch((failure) => ({ failure })));
  };
  useEffect(() => {
    const timer = setTimeout(() => history.replaceState(history.state, "", location.pathname + location.search + fragmentOf(value, schema)), PAUSE);
    return () => clearTimeout(timer);
  }, [value]);
  useEffect(() => {
    const load = () => setDraft(first(schema));
    addEventListener("hashchange", load);
    return () => removeEventListener("hashchange", load);
  }, [schema]);
  const keys = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    call();
  };
  const change = (next) => {
    setTouched(true);
    setDraft((old) => ({ ...old, value: next, text: stringify(next, "  "), error: "" }));
  };
  const shown = isTouched ? problems : [];
  const shared = { root: schema, problems: shown, plainFiles: Boolean(upstream), epoch: draft.epoch };
  return html`<div class="workbench" onKeyDown=${keys}>
    ${schema && html`<div class="arguments"><fieldset class="form" disabled=${Boolean(error)}><legend>Arguments</legend>
        ${error && html`<p class="help">The form waits until the JSON beside it is right.</p>`}
        ${reference ? html`<${Completed} schema=${schema} value=${value} shared=${shared} reference=${reference(definition)} view=${view} onChange=${change} />`
          : html`<${Field} schema=${schema} name="arguments" value=${value} path="" isRequired isRoot onChange=${change} shared=${shared} />`}</fieldset>
      <${JsonText} draft=${draft} onDraft=${(next) => { setTouched(true); setDraft(next); }} /></div>
      <${Summary} problems=${shown} />`}
    <div class="call-buttons">
      ${run.isRunning ? html`<${Button} kind="danger" onClick=${run.cancel}>Cancel<//>`
        : html`<${Button} kind="primary" disabled=${Boolean(error)} aria-keyshortcuts="Control+Enter" onClick=${call}>${kind === "tool" ? "Run" : kind === "prompt" ? "Get" : "Read"}<//>`}
      <${Button} disabled=${Boolean(error) || run.isRunning} onClick=${explain}>Explain<//>
      ${kind === "tool" && html`<label><input type="checkbox" checked=${asTask} onChange=${(event) => setAsTask(event.target.checked)} /> as a task, if it can be one</label>`}
      ${kind === "template" && html`<code>${params.uri}</code>`}</div>
    ${isAsking && html`<${Question} title=${`Run ${definition.name}?`} accept="Run" onAccept=${begin} onDismiss=${() => setAsking(false)}>
      <p>The tool says that it may destroy something.</p><//>`}
    <${Running} run=${run} />
    ${run.questions && html`<${Questions} requests=${run.questions.requests} onDone=${run.questions.done} onCancel=${run.cancel} />`}
    ${run.outcome && html`<${Result} outcome=${run.outcome} view=${view} />`}
    ${explanation && (explanation.failure ? html`<p class="note bad" role="alert">${explanation.failure.message}</p>` : html`<${Explanation} explanation=${explanation.explanation} />`)}
    <${CopyAs} request=${request} values=${value} facts=${facts} result=${run.outcome?.result} isTool=${kind === "tool"} /></div>`;
}

/** Arguments to begin with: those of the URL's fragment, or else the schema's. */
function first(schema) {
  let value;
  try {
    value = parse(decodeURIComponent(location.hash.slice(1)));
  } catch {
    value = undefined;
  }
  if (!isObject(value)) value = (schema && initial(schema, schema)) ?? {};
  return { value, text: stringify(value, "  "), error: "", epoch: Date.now() };
}

function JsonText({ draft, onDraft }) {
  const change = ({ target: { value: text } }) => {
    try {
      const value = parse(text);
      if (!isObject(value)) throw new Error("expected an object such as {}");
      onDraft({ value, text, error: "", epoch: draft.epoch + 1 });
    } catch (error) {
      onDraft({ ...draft, text, error: error.message });
    }
  };
  const isLong = draft.text.length > LONGEST_TEXT && !draft.error;
  const text = isLong ? stringify(shortened(draft.value), "  ") : draft.text;
  return html`<div class="raw"><label for="call-json">JSON</label>
    <textarea id="call-json" class="json" spellcheck=${false} readonly=${isLong} value=${text} onInput=${change} aria-invalid=${draft.error ? "true" : undefined} aria-describedby="call-json-bad"></textarea>
    <p class="field-problem" id="call-json-bad" role="status">${draft.error || (isLong && "Shown in part: a text in it is too long to be edited here.")}</p></div>`;
}

const shortened = (value) => {
  if (typeof value === "string") return value.length > 200 ? `${value.slice(0, 100)}…` : value;
  if (Array.isArray(value)) return value.map(shortened);
  return isObject(value) ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shortened(each)])) : value;
};

/** Problems at once from here, and from the server's own validator a moment later. */
function useProblems(tool, schema, value) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    if (!tool) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      post("validate", stringify({ tool, arguments: value }), abort.signal)
        .then(({ problems }) => setAnswer({ value, problems }))
        .catch(() => {});
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [tool, schema, value]);
  const local = useMemo(() => (schema ? problemsOf(schema, value, schema) : []), [schema, value]);
  return answer.value === value ? answer.problems : local;
}

function Summary({ problems }) {
  const show = (path) => {
    const places = [...document.querySelectorAll(".call [data-path]")];
    const isAbove = (each) => path === each.dataset.path || path.startsWith(`${each.dataset.path}/`);
    places.filter(isAbove).sort((one, other) => other.dataset.path.length - one.dataset.path.length)[0]?.focus();
  };
  return html`<div role="status" class="problems">${problems.length > 0 && html`<ul class="note bad">${problems.map(({ path, message }) => html`<li key=${path + message}>
    <button type="button" class="button" onClick=${() => show(path)}><code>${path || "/"}</code></button> ${message}</li>`)}</ul>`}</div>`;
}

/** Fields of texts whose values the server suggests (completion/complete). */
function Completed({ schema, value, shared, reference, view, onChange }) {
  const [suggested, setSuggested] = useState({});
  const timer = useRef(0);
  const ask = ({ target: { dataset, value: typed } }) => {
    const name = dataset.path?.slice(1).replaceAll("~1", "/").replaceAll("~0", "~");
    clearTimeout(timer.current);
    if (name) {
      timer.current = setTimeout(() => send("completion/complete", { ref: reference, argument: { name, value: typed }, context: { arguments: value } }, { view })
        .then(({ result }) => setSuggested((old) => ({ ...old, [dataset.path]: result.completion.values })), () => {}), PAUSE / 2);
    }
  };
  return html`<div onInput=${ask} onFocusIn=${ask}>
    <${Field} schema=${schema} name="arguments" value=${value} path="" isRequired isRoot onChange=${onChange} shared=${{ ...shared, suggested }} /></div>`;
}

/** A run: `begin`, `cancel`, and what is known of it. */
function useRun() {
  const [state, setState] = useState({});
  const abort = useRef(null);
  useEffect(() => () => abort.current?.abort(), []);
  const begin = async (method, params, options) => {
    abort.current?.abort();
    const controller = (abort.current = new AbortController());
    const { signal } = controller;
    const since = performance.now();
    const update = (change) => abort.current === controller && setState((old) => ({ ...old, ...(typeof change === "function" ? change(old) : change) }));
    const onNotification = ({ method: kind, params: told }) => {
      if (kind === "notifications/progress") update({ progress: told });
      else if (kind === "notifications/message") update(({ lines }) => ({ lines: [...lines, told].slice(-MOST_LINES) }));
    };
    const ask = (requests) => new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      update({ questions: { requests, done: (answers) => { update({ questions: null }); resolve(answers); } } });
    });
    setState({ isRunning: true, since, lines: [] });
    const ended = (outcome) => update({ isRunning: false, questions: null, outcome: { ...outcome, ms: performance.now() - since } });
    try {
      ended(await perform(method, params, { ...options, signal, onNotification, ask, onTask: (task) => update({ task }) }));
    } catch (error) {
      ended({ error });
    }
  };
  return { ...state, begin, cancel: () => abort.current?.abort(), reset: () => setState({}) };
}

function Running({ run }) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = run.isRunning && setInterval(() => tick(performance.now()), 100);
    return () => clearInterval(timer);
  }, [run.isRunning]);
  const { progress, task, lines = [] } = run;
  return html`<div class="running">
    ${run.isRunning && html`<p><span role="status">Running…</span> <span aria-hidden="true">${duration(performance.now() - run.since)}</span></p>`}
    ${task && html`<p>Task <a href=${link("tasks")}><code>${task.taskId}</code></a> <${Badge} state=${task.status} /> ${task.statusMessage}</p>`}
    ${progress && html`<p><progress aria-label="Progress" value=${progress.total ? Number(progress.progress) : undefined} max=${progress.total ?? undefined}></progress>
      ${" "}${String(progress.progress)}${progress.total ? ` of ${progress.total}` : ""} ${progress.message}</p>`}
    ${lines.length > 0 && html`<ol class="log code" role="log" aria-label="Log lines" tabindex="0">${lines.map((line, index) => html`<li key=${index}>
      <b>${line.level}</b> ${typeof line.data === "string" ? line.data : stringify(line.data)}</li>`)}</ol>`}</div>`;
}

function CopyAs({ request, values, facts, result, isTool }) {
  const common = { ...request, url: facts.endpoint };
  const forms = [
    ["Command line", () => commandOf(common)],
    ["curl", () => curlOf({ ...common, needsToken: facts.caller?.principal != null })],
    ...(isTool ? [["Test for the file", () => testOf({ arguments: values, result })]] : []),
  ];
  return html`<details class="copy-as"><summary>Copy as …</summary>${forms.map(([name, write]) => html`<div key=${name}><h3>${name}</h3><${Written} write=${write} name=${name} /></div>`)}</details>`;
}

function Written({ write, name }) {
  const text = write();
  return html`<${CopyButton} text=${text} label=${`Copy ${name}`} /><pre class="code wrap" tabindex="0" role="region" aria-label=${name}>${text}</pre>`;
}
