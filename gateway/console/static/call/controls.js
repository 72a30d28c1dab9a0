/** Controls of single values: text, numbers, choices, constants, and JSON for all others. */

import { html, useState } from "../components.js";
import { typedNumber } from "./check.js";
import { ExactNumber, equal, parse, stringify } from "./json.js";

/** Maximum number of choices shown as radio buttons. */
export const FEW = 4;

export function Text({ field, id, value = "", path, isRequired, onChange, aria, shared }) {
  const { schema } = field;
  const change = (event) => onChange(event.target.value === "" && !isRequired ? undefined : event.target.value);
  // A date field shows nothing for text that is not a date.
  const isDate = field.input === "date" && (value === "" || /^\d{4}-\d\d-\d\d$/.test(value));
  const common = { id, value, "data-path": path, placeholder: hint(schema), onInput: change, autocomplete: "off", spellcheck: false, ...aria };
  const suggested = shared.suggested?.[path];
  if (suggested && !value.includes("\n")) {
    return html`<input list=${`${id}-list`} ...${common} />
      <datalist id=${`${id}-list`}>${suggested.map((each) => html`<option key=${each} value=${each} />`)}</datalist>`;
  }
  if (field.input === "lines" || value.includes("\n")) return html`<textarea rows="1" ...${common}></textarea>`;
  return html`<input type=${field.input === "date" && !isDate ? "text" : field.input} ...${common} />`;
}

export function NumberText({ field, id, value, path, onChange, aria }) {
  const { minimum, maximum } = field.schema;
  const limits = [minimum !== undefined && `from ${minimum}`, maximum !== undefined && `to ${maximum}`].filter(Boolean).join(" ");
  const shown = value instanceof ExactNumber ? value.text : value ?? "";
  return html`<input id=${id} data-path=${path} inputmode=${field.isInteger ? "numeric" : "decimal"} autocomplete="off" value=${shown}
    placeholder=${hint(field.schema) ?? limits} onInput=${(event) => onChange(typedNumber(event.target.value))} ...${aria} />`;
}

const hint = ({ examples, default: standard }) => {
  const value = Array.isArray(examples) && examples.length ? examples[0] : standard;
  return value === undefined ? undefined : typeof value === "string" ? value : stringify(value);
};

const choiceText = ({ value, title }) => title ?? (typeof value === "string" ? value || '""' : stringify(value));

const BOOLEANS = [{ value: true }, { value: false }];

export function Choices({ field, id, value, path, isRequired, onChange, aria }) {
  const known = [...(field.choices ?? BOOLEANS), ...(field.nullable ? [{ value: null }] : [])];
  const isOther = value !== undefined && !known.some((each) => equal(each.value, value));
  const all = isOther ? [...known, { value }] : known;
  const chosen = all.findIndex((each) => value !== undefined && equal(each.value, value));
  const pick = (index) => onChange(index < 0 ? undefined : all[index].value);
  const none = chosen < 0 || !isRequired;
  if (!field.choices || field.choices.length <= FEW) {
    const option = (index, label) => html`<label key=${index}><input type="radio" name=${id} checked=${index === chosen}
      data-path=${path} onChange=${() => pick(index)} ...${aria} aria-required=${undefined} /> ${label}</label>`;
    return html`<div class="radios">${all.map((each, index) => option(index, choiceText(each)))}${!isRequired && option(-1, "not given")}</div>`;
  }
  return html`<select id=${id} data-path=${path} value=${String(chosen)} onChange=${(event) => pick(Number(event.target.value))} ...${aria}>
    ${none && html`<option value="-1" selected=${chosen < 0}>${isRequired ? "choose…" : "not given"}</option>`}
    ${all.map((each, index) => html`<option key=${index} value=${String(index)} selected=${index === chosen}>${choiceText(each)}</option>`)}
  </select>`;
}

export function Constant({ field, id, value, path, isRequired, onChange, aria }) {
  const isGiven = equal(value ?? null, field.value) && value !== undefined;
  return html`<label><input type="checkbox" id=${id} data-path=${path} checked=${isGiven} disabled=${isRequired && isGiven}
    onChange=${(event) => onChange(event.target.checked ? field.value : undefined)} ...${aria} aria-required=${undefined} />
    ${" "}<code>${stringify(field.value)}</code></label>`;
}

export function Several({ field, value = [], path, isRequired, onChange, aria }) {
  const isIn = (choice) => value.some((item) => equal(item, choice.value));
  const change = (choice) => {
    const next = field.choices.filter((each) => (each === choice ? !isIn(each) : isIn(each))).map((each) => each.value);
    onChange(next.length || isRequired ? next : undefined);
  };
  return html`<div class="radios">${field.choices.map((choice, index) => html`<label key=${index}><input type="checkbox" data-path=${path}
    checked=${isIn(choice)} onChange=${() => change(choice)} aria-invalid=${aria["aria-invalid"]} /> ${choiceText(choice)}</label>`)}</div>`;
}

/** The JSON of one part. Invalid text stays in the field and changes nothing. */
export function JsonPart({ id, value, path, onChange, aria }) {
  const [draft, setDraft] = useState(null);
  const [problem, setProblem] = useState("");
  const text = draft !== null && (problem || equal(parsed(draft), value)) ? draft : value === undefined ? "" : stringify(value, "  ");
  const change = (event) => {
    setDraft(event.target.value);
    try {
      const next = event.target.value.trim() === "" ? undefined : parse(event.target.value);
      setProblem("");
      onChange(next);
    } catch (error) {
      setProblem(error.message);
    }
  };
  return html`<textarea rows="2" class="json" id=${id} data-path=${path} placeholder="JSON" spellcheck=${false} value=${text}
      onInput=${change} ...${aria} aria-invalid=${problem ? "true" : aria["aria-invalid"]}></textarea>
    ${problem && html`<p class="field-problem" role="status">${problem}</p>`}`;
}

const parsed = (text) => {
  try {
    return parse(text);
  } catch {
    return undefined;
  }
};
