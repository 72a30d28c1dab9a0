/** Results: text, JSON, images, audio, resources and messages. Server data is only inserted as text nodes and blobs. */

import { Badge, Button, CopyButton, Facts, Tabs, html, useEffect, useMemo, useState } from "../components.js";
import { bytes, count, duration } from "../format.js";
import { JsonTree } from "../json-tree.js";
import { link } from "../router.js";
import { ExactNumber, isObject, member, stringify } from "./json.js";
import { columnsOf, jsonOf, repeats, tablesOf } from "./tables.js";

/** Types that the page can show. SVG runs no scripts in an `<img>`. Other types can only be saved. */
const SHOWN = /^(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)|audio\/(mpeg|mp3|wav|x-wav|wave|ogg|opus|mp4|x-m4a|webm|aac|flac))$/;
const LONG = 4000;
const MOST_ROWS = 100;

/** Return the state of an outcome, `{result, error, ms, bytes}`. */
export function stateOf({ result, error }) {
  if (error) return error.name === "AbortError" ? "cancelled" : "error";
  return result.isError ? "tool_error" : "ok";
}

export function Result({ outcome, view }) {
  const { result, error, ms } = outcome;
  const state = stateOf(outcome);
  return html`<section class="result" aria-label="Result">
    <p class="result-head" role="status"><${Badge} state=${state} /> <span>${duration(ms)}</span>
      ${outcome.bytes !== undefined && html` <span>${bytes(outcome.bytes)}</span>`}</p>
    ${error ? state !== "cancelled" && html`<${Failure} error=${error} />` : html`<${Parts} result=${result} view=${view} />`}
  </section>`;
}

/** The code, message and data of a JSON-RPC error. */
export function Failure({ error }) {
  return html`<div class="note bad" role="alert">${error.code !== undefined && html`<code>${String(error.code)}</code> `}${error.message}</div>
    ${error.data !== undefined && html`<${JsonTree} value=${error.data} label="Data of the error" />`}`;
}

/** The parts of a result. Text that only repeats the structured content is not shown twice. */
export function Parts({ result, view }) {
  const { content = [], structuredContent: structured, contents, messages, description, _meta } = result;
  const inner = isObject(structured) && Object.keys(structured).join() === "result" ? structured.result : structured;
  // Text is easier to read than a tree with one value.
  const isText = !isObject(inner) && !Array.isArray(inner);
  const shown = isText ? content : content.filter((block) => !repeats(block, structured));
  return html`${description && html`<p class="help">${description}</p>`}
    ${messages?.map((each, index) => html`<div class="message" key=${index}><h3>${each.role}</h3>
      ${[each.content].flat().map((block) => html`<${Block} block=${block} view=${view} />`)}</div>`)}
    ${shown.map((block, index) => html`<${Block} key=${index} block=${block} view=${view} />`)}
    ${contents?.map((each, index) => html`<${Contents} key=${index} contents=${each} />`)}
    ${!content.length && !contents && !messages && structured === undefined && html`<p class="quiet">The result is empty.</p>`}
    ${structured !== undefined && !(isText && content.some((block) => repeats(block, structured)))
      && html`<h4>Structured content</h4>
        ${shown.length < content.length && html`<p class="quiet">The text content is the same JSON.</p>`}
        <${Data} value=${structured} label="Structured content" />`}
    ${_meta && html`<${Fold} summary="_meta" draw=${() => html`<${JsonTree} value=${_meta} label="Metadata" />`} />`}
    <${Fold} summary="Whole result as JSON" draw=${() => html`<${JsonTree} value=${result} open=${1} label="Whole result" />`} />`;
}

/** Content that is rendered when it is opened. */
export function Fold({ summary, draw }) {
  const [isOpen, setOpen] = useState(false);
  const toggle = (event) => event.target === event.currentTarget && setOpen(event.target.open);
  return html`<details onToggle=${toggle}><summary>${summary}</summary>${isOpen && draw()}</details>`;
}

function Block({ block, view }) {
  if (block.type === "text") return html`<${Text} text=${String(block.text)} />`;
  if (block.type === "image" || block.type === "audio") return html`<${Media} data=${block.data} type=${block.mimeType} />`;
  if (block.type === "resource" && isObject(block.resource)) return html`<${Contents} contents=${block.resource} />`;
  if (block.type === "resource_link") {
    return html`<p class="resource"><a href=${link("call", { resource: block.uri, view })}>${block.title ?? block.name ?? block.uri}</a>
      ${" "}<code>${block.uri}</code> ${block.mimeType}<br />${block.description}</p>`;
  }
  return html`<${JsonTree} value=${block} label=${`Content of type ${block.type}`} />`;
}

function Contents({ contents }) {
  const { uri, mimeType, text, blob } = contents;
  return html`<div class="resource"><p><code>${uri}</code> ${mimeType}</p>
    ${typeof text === "string" ? html`<${Text} text=${text} />` : html`<${Media} data=${blob} type=${mimeType} name=${uri} />`}</div>`;
}

/** Plain text, which is cut if it is long. JSON can also be shown as a tree or a table. */
function Text({ text }) {
  const value = useMemo(() => jsonOf(text), [text]);
  return value === undefined ? html`<${Plain} text=${text} />` : html`<${Data} value=${value} text=${text} label="Text as JSON" />`;
}

function Plain({ text }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole || text.length <= LONG ? text : text.slice(0, LONG);
  return html`<div class="text"><pre class="code wrap" tabindex="0" role="group" aria-label="Text">${shown}</pre>
    <div class="text-tools"><${CopyButton} text=${text} label="Copy text" />
      ${shown.length < text.length && html`<${Button} onClick=${() => setWhole(true)}>Show all ${bytes(text.length)}<//>`}</div></div>`;
}

/** JSON as a table if it is a list of objects, as a tree, and as the text that contained it. */
function Data({ value, text, label }) {
  const tables = useMemo(() => tablesOf(value), [value]);
  const tabs = [...(tables ? [["table", "Table"]] : []), ["tree", "Tree"], ...(text === undefined ? [] : [["text", "Text"]])];
  const [tab, setTab] = useState(tabs[0][0]);
  const shown = tabs.some(([name]) => name === tab) ? tab : tabs[0][0];
  return html`<div class="data">
    ${tabs.length > 1 && html`<${Tabs} label=${`Views of ${label}`} tabs=${tabs} value=${shown} onChange=${setTab} />`}
    ${shown === "tree" && html`<${JsonTree} value=${value} label=${label} />`}
    ${shown === "text" && html`<${Plain} text=${text} />`}
    ${shown === "table" && html`${tables.others.length > 0 && html`<${Facts} pairs=${tables.others.map(([name, each]) => [name, cellText(each)])} />`}
      ${tables.lists.map(([name, rows]) => html`<${ObjectTable} key=${name} name=${name} rows=${rows} />`)}`}</div>`;
}

const cellText = (value) => (value === undefined ? "" : typeof value === "string" ? value : stringify(value));
const isNumber = (value) => typeof value === "number" || value instanceof ExactNumber;

function ObjectTable({ name, rows }) {
  const [most, setMost] = useState(MOST_ROWS);
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const numeric = useMemo(() => columns.filter((column) => rows.every((row) => isNumber(member(row, column) ?? 0))), [rows]);
  const classOf = (column) => (numeric.includes(column) ? "number" : "");
  return html`${name && html`<h4>${name} <span class="quiet">${count(rows.length)}</span></h4>`}
    <div class="scroll" tabindex="0" role="region" aria-label=${name || "List"}><table class="objects">
      <thead><tr>${columns.map((column) => html`<th key=${column} scope="col" class=${classOf(column)}>${column}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, most).map((row, at) => html`<tr key=${at}>${columns.map(
        (column) => html`<td key=${column} class=${classOf(column)}><div>${cellText(member(row, column))}</div></td>`)}</tr>`)}</tbody></table></div>
    ${rows.length > most && html`<${Button} onClick=${() => setMost(most + 1000)}>Show more of ${count(rows.length)}<//>`}`;
}

function Media({ data, type, name = "content" }) {
  const media = String(type ?? "").split(";")[0].trim().toLowerCase();
  const isShown = SHOWN.test(media);
  const [made, setMade] = useState({});
  useEffect(() => {
    let content;
    try {
      content = Uint8Array.from(atob(data), (sign) => sign.charCodeAt(0));
    } catch {
      setMade({ problem: "The content is not base64." });
      return undefined;
    }
    const shown = isShown && URL.createObjectURL(new Blob([content], { type: media }));
    // Saved without a type: HTML or SVG in a tab would run with the origin of this page.
    const saved = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
    setMade({ shown, saved, size: content.length });
    // Object URLs keep their data in memory until they are revoked.
    return () => [shown, saved].forEach((url) => url && URL.revokeObjectURL(url));
  }, [data, media]);
  const file = `${name.split(/[/\\]/).at(-1) || "content"}${name === "content" ? `.${media.split("/")[1]?.replace(/\W.*/, "") || "bin"}` : ""}`;
  return html`<div class="media">
    ${made.problem && html`<p class="note bad">${made.problem}</p>`}
    ${made.shown && (media.startsWith("image/")
      ? html`<img src=${made.shown} alt=${`Image of type ${media}`} />`
      : html`<audio controls src=${made.shown}></audio>`)}
    ${made.saved && html`<p><code>${type ?? "no type"}</code> ${bytes(made.size)} <a href=${made.saved} download=${file}>Save</a></p>`}</div>`;
}

/** The explanation of a request, without running it. */
export function Explanation({ explanation }) {
  const { name: called, does, ...facts } = explanation;
  const rows = Object.entries(facts).filter(([, value]) => stringify(value).length > 2);
  return html`<section class="explanation" aria-label="Explanation"><p><b>${called}</b> ${does}</p>
    <dl>${rows.map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt>
      <dd>${isObject(value) || Array.isArray(value) ? html`<${JsonTree} value=${value} label=${name} />` : html`<code>${String(value)}</code>`}</dd>`)}
    </dl></section>`;
}
