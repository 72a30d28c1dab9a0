/** Arguments as JSON next to the form, their problems, and completion. */

import { html, useEffect, useMemo, useRef, useState } from "../components.js";
import { problemsOf, step } from "./check.js";
import { Field } from "./form.js";
import { isObject, member, parse, stringify } from "./json.js";
import { post, send } from "./run.js";
import { initial } from "./schema.js";

const LONGEST_TEXT = 100_000;
const PAUSE = 300;

const unescaped = (step) => step.replaceAll("~1", "/").replaceAll("~0", "~");

/** Return the value at a JSON Pointer, or undefined. */
export const valueAt = (value, path) =>
  path.split("/").slice(1).reduce(
    (found, key) => (found && typeof found === "object" ? member(found, unescaped(key)) : undefined),
    value,
  );

/** Return the initial arguments: `prepared` ones, or those of the URL's fragment or the schema. */
export function firstDraft(schema, prepared) {
  let value = prepared;
  try {
    value ??= parse(decodeURIComponent(location.hash.slice(1)));
  } catch {
    value = undefined;
  }
  if (!isObject(value)) value = (schema && initial(schema, schema)) ?? {};
  return { value, text: stringify(value, "  "), error: "", epoch: Date.now() };
}

export function JsonText({ draft, onDraft }) {
  const change = ({ target: { value: text } }) => {
    try {
      const value = parse(text);
      if (!isObject(value)) throw new Error("expected an object such as {}");
      onDraft({ value, text, error: "", epoch: draft.epoch + 1 });
    } catch (error) {
      onDraft({ ...draft, text, error: error.message });
    }
  };
  // Large text in a textarea would block the page on every key press.
  const isLong = draft.text.length > LONGEST_TEXT && !draft.error;
  const text = isLong ? stringify(shortened(draft.value), "  ") : draft.text;
  return html`<div class="raw"><label for="call-json">JSON</label>
    <textarea id="call-json" class="json" spellcheck=${false} readonly=${isLong} value=${text}
      onInput=${change} aria-invalid=${draft.error ? "true" : undefined} aria-describedby="call-json-bad"></textarea>
    <p class="field-problem" id="call-json-bad" role="status">
      ${draft.error || (isLong && "Shown in part, because a text is too long to edit here.")}</p></div>`;
}

const shortened = (value) => {
  if (typeof value === "string") return value.length > 200 ? `${value.slice(0, 100)}…` : value;
  if (Array.isArray(value)) return value.map(shortened);
  return isObject(value) ? Object.fromEntries(Object.entries(value).map(([name, each]) => [name, shortened(each)])) : value;
};

/** Return the problems found here immediately, and those of the server later. */
export function useProblems(tool, schema, value) {
  const [answer, setAnswer] = useState({});
  useEffect(() => {
    if (!tool) return undefined;
    const abort = new AbortController();
    const timer = setTimeout(() => {
      const text = stringify({ tool, arguments: value });
      if (text.length > LONGEST_TEXT) return; // a file is not sent with every key
      post("validate", text, abort.signal)
        .then(({ problems }) => setAnswer({ value, problems }))
        .catch(() => {});
    }, PAUSE);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [tool, schema, value]);
  const local = useMemo(() => (schema ? problemsOf(schema, value, schema) : []), [schema, value]);
  // Only use the response if the value has not changed since.
  if (answer.value !== value) return local;
  // For alternatives, the server only reports that none matches. Show the problems of the likeliest one instead.
  const isBelow = (path) => (each) => each.path.startsWith(`${path}/`);
  const within = local.filter(({ path }) => answer.problems.some((each) => isBelow(each.path)({ path })));
  return [...answer.problems.filter(({ path }) => !within.some(isBelow(path))), ...within];
}

/** Text fields with completion (completion/complete), if the first response contains values. */
export function Completed({ schema, value, shared, reference, view, onChange }) {
  const [suggested, setSuggested] = useState({});
  const timer = useRef(0);
  const complete = async (path, typed) => {
    const argument = { name: unescaped(path.slice(1)), value: typed };
    const { result } = await send("completion/complete", { ref: reference, argument, context: { arguments: value } }, { view });
    const { values } = result.completion;
    setSuggested((old) => (values.length || path in old ? { ...old, [path]: values } : old));
  };
  useEffect(() => {
    for (const name of Object.keys(schema.properties)) complete(step("", name), "").catch(() => {});
  }, [schema]);
  const ask = ({ target: { dataset, value: typed } }) => {
    clearTimeout(timer.current);
    if (dataset.path in suggested) timer.current = setTimeout(() => complete(dataset.path, typed).catch(() => {}), PAUSE / 2);
  };
  return html`<div onInput=${ask} onFocusCapture=${ask}>
    <${Field} schema=${schema} name="arguments" value=${value} path="" isRequired isRoot onChange=${onChange}
      shared=${{ ...shared, suggested }} /></div>`;
}
