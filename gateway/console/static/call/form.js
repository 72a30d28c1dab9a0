/** A form for a JSON Schema with one field per part. Unsupported parts are edited as JSON. */

import { Button, html, useMemo, useRef, useState } from "../components.js";
import { bestOption, step } from "./check.js";
import { Choices, Constant, FEW, JsonPart, NumberText, Several, Text } from "./controls.js";
import { File } from "./file.js";
import { equal, isObject, withMember } from "./json.js";
import { blank, fieldOf, initial, itemSchema, memberSchema, typeOf } from "./schema.js";

const TYPE_OF_KIND = { object: "object", array: "array", file: "string", boolean: "boolean" };
let serial = 0;

/** Whether a field of this kind can show a value completely. */
const shows = ({ kind, choices }, value) => {
  if (value === undefined || kind === "alternatives" || kind === "const") return true;
  // A textarea changes all line breaks to LF, so text with CR would be changed.
  if (kind === "string") return typeof value === "string" && !value.includes("\r");
  if (kind === "number") return ["number", "string"].includes(typeOf(value));
  if (kind === "several") {
    const inOrder = Array.isArray(value) && choices.filter((each) => value.some((item) => equal(item, each.value)));
    return inOrder && equal(inOrder.map((each) => each.value), value);
  }
  if (kind === "choices") return !isObject(value) && !Array.isArray(value);
  return typeOf(value) === TYPE_OF_KIND[kind];
};

/**
 * One field. `shared` is `{root, problems, plainFiles, epoch}`: the root schema, all problems, whether files are sent as
 * base64, and a number that changes when values are replaced. `actions` are shown next to the label.
 */
export function Field({ schema, name, value: given, path, isRequired, onChange, shared, actions, isRoot, isBare }) {
  const field = useMemo(() => fieldOf(schema, shared.root), [schema, shared.root]);
  const id = useRef(null);
  // Not the path, because a dialog can show another form with the same paths.
  id.current ??= `field-${(serial += 1)}`;
  // Null marks an added part without a value, unless the schema allows null.
  const value = given === null && !field.nullable && !["alternatives", "const", "json"].includes(field.kind) ? undefined : given;
  const isNull = value === null && field.nullable;
  const isCompound = ["object", "array", "alternatives"].includes(field.kind) && shows(field, value);
  const isAbsent = isCompound && value === undefined && !isRoot && !(isRequired && field.kind === "alternatives");
  // Problems of parts without a field of their own are shown here.
  const isLeaf = !isCompound || isAbsent || isNull;
  const problems = shared.problems.filter((each) => each.path === path || (isLeaf && each.path.startsWith(`${path}/`)))
    .map((each) => (each.path === path ? each.message : `${each.path.slice(path.length)} ${each.message}`));
  const isGroup = isCompound || ["boolean", "several"].includes(field.kind) || (field.kind === "choices" && field.choices.length <= FEW);
  const said = [field.description && `${id.current}-text`, problems.length && `${id.current}-bad`].filter(Boolean).join(" ");
  const aria = {
    "aria-describedby": said || undefined, "aria-invalid": problems.length ? "true" : undefined,
    "aria-required": isRequired ? "true" : undefined, "aria-label": isBare ? name : undefined,
  };
  const control = { field, id: id.current, name, value, path, isRequired, onChange, shared, aria };
  const Kind = shows(field, value) ? CONTROLS[field.kind] : JsonPart;
  const label = html`${field.title ?? name}${isRequired && html`<span class="required" title="required"> *</span>`}
    ${field.title && field.title !== name && html` <code>${name}</code>`}`;
  const beside = html`${field.nullable && !isChoice(field) && html`<label class="null"><input type="checkbox" checked=${isNull}
      onChange=${(event) => onChange(event.target.checked ? null : initial(schema, shared.root))} /> null</label>`}
    ${isCompound && value !== undefined && !isRequired && !isRoot && !isNull
      && html`<${Button} label=${`Remove ${name}`} onClick=${() => onChange(undefined)}>Remove<//>`}${actions}`;
  if (isBare) return html`<${Kind} ...${control} />`;
  const help = html`${field.description && html`<p class="help" id=${`${id.current}-text`}>${field.description}</p>`}
    ${isNull ? null : isAbsent
      ? html`<${Button} onClick=${() => onChange(blank(schema, shared.root))}>Add ${name}<//>`
      : html`<${Kind} ...${control} />`}
    ${problems.length > 0 && html`<p class="field-problem" id=${`${id.current}-bad`}>${problems.join("; ")}</p>`}`;
  if (isRoot) return html`<div class="field" data-path="" tabindex="-1">${help}</div>`;
  if (isGroup) {
    return html`<fieldset class="field" data-path=${path} aria-describedby=${said || undefined} tabindex="-1">
      <legend>${label}</legend>${beside}${help}</fieldset>`;
  }
  return html`<div class="field"><div class="field-head"><label for=${id.current}>${label}</label>${beside}</div>${help}</div>`;
}

const isChoice = (field) => field.kind === "choices" || field.kind === "boolean";

function ObjectFields({ field, value = {}, path, onChange, shared }) {
  const known = new Set(field.members.map(([name]) => name));
  const others = Object.keys(value).filter((name) => !known.has(name));
  const change = (name) => (next) => onChange(withMember(value, name, next));
  return html`${field.members.map(([name, schema]) => html`<${Field} key=${name} schema=${schema} name=${name} shared=${shared}
      value=${Object.hasOwn(value, name) ? value[name] : undefined} path=${step(path, name)}
      isRequired=${field.required.has(name)} onChange=${change(name)} />`)}
    ${others.map((name) => html`<${Field} key=${name} schema=${memberSchema(field.schema, name)} name=${name} shared=${shared} isRequired
      value=${value[name]} path=${step(path, name)} onChange=${change(name)}
      actions=${html`<${Button} label=${`Remove ${name}`} onClick=${() => change(name)(undefined)}>✕<//>`} />`)}
    ${field.isOpen && html`<${NewMember} taken=${value} onAdd=${(name) => change(name)(blank(memberSchema(field.schema, name), shared.root))} />`}
    ${!field.members.length && !others.length && !field.isOpen && html`<p class="help">Takes nothing.</p>`}`;
}

function NewMember({ taken, onAdd }) {
  const [name, setName] = useState("");
  const isTaken = Object.hasOwn(taken, name);
  const add = () => {
    if (isTaken) return;
    onAdd(name);
    setName("");
  };
  return html`<div class="new-member"><input aria-label="Name of another member" placeholder="name" value=${name} autocomplete="off"
      aria-invalid=${isTaken ? "true" : undefined} onInput=${(event) => setName(event.target.value)}
      onKeyDown=${(event) => event.key === "Enter" && !event.ctrlKey && (event.preventDefault(), add())} />
    <${Button} disabled=${isTaken || !name} onClick=${add}>Add member<//></div>`;
}

function ArrayItems({ field, name, value = [], path, onChange, shared }) {
  const [moves, setMoves] = useState(0);
  const changed = (next) => {
    setMoves(moves + 1);
    onChange(next);
  };
  const without = (index) => value.filter((_, each) => each !== index);
  const moved = (index, to) => without(index).toSpliced(to, 0, value[index]);
  const most = field.schema.maxItems ?? Infinity;
  const below = { ...shared, epoch: `${shared.epoch}.${moves}` };
  const add = () => onChange([...value, blank(itemSchema(field.schema, value.length), shared.root)]);
  const button = (label, sign, next, disabled) => html`<${Button} label=${label} disabled=${disabled} onClick=${() => changed(next())}>${sign}<//>`;
  return html`${value.map((item, index) => html`<${Field} key=${index} schema=${itemSchema(field.schema, index)} name=${`${name} ${index + 1}`}
      value=${item} isRequired shared=${below} path=${step(path, index)}
      onChange=${(next) => onChange(value.with(index, next === undefined ? null : next))}
      actions=${html`<span class="item-actions">${button(`Move ${name} ${index + 1} up`, "↑", () => moved(index, index - 1), index === 0)}
        ${button(`Move ${name} ${index + 1} down`, "↓", () => moved(index, index + 1), index === value.length - 1)}
        ${button(`Remove ${name} ${index + 1}`, "✕", () => without(index))}</span>`} />`)}
    <${Button} disabled=${value.length >= most} onClick=${add}>Add to ${name}<//>`;
}

function Alternatives({ field, id, name, value, path, onChange, shared }) {
  const [chosen, setChosen] = useState({});
  const best = useMemo(() => bestOption(field.options, value, shared.root), [field, shared.epoch]);
  const index = chosen.epoch === shared.epoch ? chosen.index : best;
  const pick = (event) => {
    const next = Number(event.target.value);
    setChosen({ epoch: shared.epoch, index: next });
    onChange(blank(field.options[next].schema, shared.root));
  };
  const option = field.options[index];
  return html`<label class="alternative">as <select aria-label=${`Kind of ${name}`} value=${String(index)} onChange=${pick}>
      ${field.options.map((each, at) => html`<option key=${at} value=${String(at)} selected=${at === index}>${each.title}</option>`)}</select></label>
    <${Field} key=${`${id}-${index}`} schema=${option.schema} name=${name} value=${value} path=${path} isRequired shared=${shared} isBare
      onChange=${(next) => onChange(next === undefined ? null : next)} />`;
}

const CONTROLS = {
  string: Text, number: NumberText, boolean: Choices, choices: Choices, const: Constant, file: File,
  object: ObjectFields, array: ArrayItems, several: Several, alternatives: Alternatives, json: JsonPart,
};
