/** The request: its arguments, buttons, result, and equivalent commands. */

import { Button, Code, html, useEffect, useMemo, useRef, useState } from "../components.js";
import { counted } from "../format.js";
import { link } from "../router.js";
import { Completed, JsonText, firstDraft, useProblems, valueAt } from "./arguments.js";
import { fragmentOf } from "./copy.js";
import { CopyAs } from "./copy-as.js";
import { Field } from "./form.js";
import { remember, takePrepared } from "./history.js";
import { stringify } from "./json.js";
import { Question, Questions } from "./questions.js";
import { Explanation, Result, stateOf } from "./result.js";
import { post } from "./run.js";
import { Running, useRun } from "./running.js";
import { expand, variablesOf } from "./wire.js";

const PAUSE = 300;

const texts = (names, required, more) => ({
  type: "object", additionalProperties: false, required,
  properties: Object.fromEntries(names.map((name) => [name, { type: "string", maxLength: 1e6, ...more?.(name) }])),
});

const promptSchema = ({ arguments: given = [] }) => {
  const required = given.filter((each) => each.required).map((each) => each.name);
  return texts(given.map((each) => each.name), required, (name) => {
    const { title, description } = given.find((each) => each.name === name);
    return { title, description };
  });
};

/** By kind: the schema of the arguments, the request, and the reference for completion. */
const REQUESTS = {
  tool: {
    verb: "Run", method: "tools/call",
    schemaOf: ({ inputSchema }) => inputSchema,
    paramsOf: ({ name }, values) => ({ name, arguments: values }),
  },
  resource: { verb: "Read", method: "resources/read", schemaOf: () => null, paramsOf: ({ uri }) => ({ uri }) },
  template: {
    verb: "Read", method: "resources/read",
    schemaOf: ({ uriTemplate }) => texts(variablesOf(uriTemplate), []),
    paramsOf: ({ uriTemplate }, values) => ({ uri: expand(uriTemplate, values) }),
    reference: ({ uriTemplate }) => ({ type: "ref/resource", uri: uriTemplate }),
  },
  prompt: {
    verb: "Get", method: "prompts/get",
    schemaOf: promptSchema,
    paramsOf: ({ name }, values) => ({ name, arguments: values }),
    reference: ({ name }) => ({ type: "ref/prompt", name }),
  },
};

function focusProblem() {
  const field = document.querySelector(".form .field-problem")?.closest(".field");
  (field?.querySelector("input, textarea, select, button") ?? field)?.focus();
}

export function Workbench({ kind, name: target, definition, upstream, mayBeTask, view, facts }) {
  const { verb, method, schemaOf, paramsOf, reference } = REQUESTS[kind];
  const schema = useMemo(() => schemaOf(definition), [definition]);
  const [draft, setDraft] = useState(() => firstDraft(schema, takePrepared(target)));
  const [isTouched, setTouched] = useState(false);
  const [isTried, setTried] = useState(false);
  const [asTask, setAsTask] = useState(false);
  const [explanation, setExplanation] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const [isRefused, setRefused] = useState(false);
  const run = useRun();
  const { value, error } = draft;
  const params = paramsOf(definition, value);
  const problems = useProblems(kind === "tool" && definition.name, schema, value);
  const request = { method, params, view, schema: kind === "tool" ? schema : null };
  // Only if the hint is set: its default is true, so every tool would ask.
  const isDestructive = kind === "tool" && definition.annotations?.destructiveHint === true;
  const begin = () => {
    setAsking(false);
    setRefused(false);
    setExplanation(null);
    const fragment = fragmentOf(value, schema);
    const onEnd = (outcome) => remember({
      name: target, href: link("call", { [kind]: target, view }) + fragment, at: new Date().toISOString(), ms: outcome.ms, state: stateOf(outcome),
      shown: decodeURIComponent(fragment.slice(1)).slice(0, 100),
    });
    run.begin(method, params, { view, schema: request.schema, asTask, onEnd });
  };
  const call = (isForced = false) => {
    if (error || run.isRunning) return;
    setTried(true);
    if (problems.length && !isForced) {
      setRefused(true);
      requestAnimationFrame(focusProblem);
    } else if (isDestructive) setAsking(true);
    else begin();
  };
  const explain = async () => {
    setTried(true);
    run.reset();
    setExplanation(await post(view ? `explain?view=${encodeURIComponent(view)}` : "explain", stringify({ method, params })).catch((failure) => ({ failure })));
  };
  useEffect(() => {
    const timer = setTimeout(() => {
      // In the fragment, because servers and proxies log the rest of a URL.
      history.replaceState(history.state, "", location.pathname + location.search + fragmentOf(value, schema));
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [value]);
  useEffect(() => {
    const load = () => setDraft(firstDraft(schema));
    addEventListener("hashchange", load);
    return () => removeEventListener("hashchange", load);
  }, [schema]);
  const latest = useRef(call);
  // The listener is added once, and must use the state of the last render.
  latest.current = call;
  useEffect(() => {
    const keys = (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      latest.current();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, []);
  const result = useMemo(() => run.outcome && html`<${Result} outcome=${run.outcome} view=${view} />`, [run.outcome, view]);
  const change = (next) => {
    setTouched(true);
    setDraft((old) => ({ ...old, value: next, text: stringify(next, "  "), error: "" }));
  };
  // Missing arguments are not shown as problems before the first call.
  const shown = isTried ? problems : isTouched ? problems.filter(({ path }) => valueAt(value, path) !== undefined) : [];
  const shared = { root: schema, problems: shown, plainFiles: Boolean(upstream), epoch: draft.epoch };
  return html`<div class="workbench">
    ${schema && html`<div class="arguments"><fieldset class="form" disabled=${Boolean(error)}><legend>Arguments</legend>
        ${error && html`<p class="help">Fix the JSON to use the form.</p>`}
        ${reference
          ? html`<${Completed} schema=${schema} value=${value} shared=${shared} reference=${reference(definition)} view=${view}
            onChange=${change} />`
          : html`<${Field} schema=${schema} name="arguments" value=${value} path="" isRequired isRoot shared=${shared}
            onChange=${change} />`}</fieldset>
      <${JsonText} draft=${draft} onDraft=${(next) => { setTouched(true); setDraft(next); }} /></div>`}
    ${isRefused && problems.length > 0 && html`<p class="note bad" role="alert">Not sent. ${counted(problems.length, "problem")} in the arguments.
      ${" "}<${Button} onClick=${() => call(true)}>Send anyway<//></p>`}
    <div class="call-buttons">
      <${Button} kind=${isDestructive ? "danger-primary" : "primary"} disabled=${Boolean(error)} aria-disabled=${String(Boolean(run.isRunning))}
        aria-keyshortcuts="Control+Enter" onClick=${() => call()}>${verb}<//>
      ${run.isRunning && html`<${Button} kind="danger" onClick=${run.cancel}>Cancel<//>`}
      <${Button} disabled=${Boolean(error) || run.isRunning} onClick=${explain}>Explain<//>
      ${mayBeTask && html`<label>
        <input type="checkbox" checked=${asTask} onChange=${(event) => setAsTask(event.target.checked)} /> as a task, if it can be one</label>`}
      ${kind === "template" && html`<code>${params.uri}</code>`}</div>
    ${isAsking && html`<${Question} title=${`Run ${definition.name}?`} accept="Run" isDestructive onAccept=${begin} onDismiss=${() => setAsking(false)}>
      <p>This tool is marked as destructive: it can change or delete data.</p>
      <${Code} text=${stringify(value, "  ")} label="Arguments" wrap /><//>`}
    <${Running} run=${run} />
    ${run.questions && html`<${Questions} requests=${run.questions.requests} onDone=${run.questions.done} onCancel=${run.cancel}
      isDestructive=${isDestructive} />`}
    ${result}
    ${explanation && (explanation.failure
      ? html`<p class="note bad" role="alert">${explanation.failure.message}</p>`
      : html`<${Explanation} explanation=${explanation.explanation} />`)}
    <${CopyAs} request=${request} values=${value} facts=${facts} result=${run.outcome?.result} isTool=${kind === "tool"} /></div>`;
}
