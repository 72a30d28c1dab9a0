/** Results: text, JSON, images, audio, resources and messages. Server data is only inserted as text nodes and blobs. */

import { Badge, Button, CopyButton, html, useEffect, useMemo, useState } from "../components.js";
import { bytes, duration } from "../format.js";
import { JsonTree } from "../json-tree.js";
import { link } from "../router.js";
import { isObject, parse, stringify } from "./json.js";

/** Types that the page can show. SVG runs no scripts in an `<img>`. Other types can only be saved. */
const SHOWN = /^(image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)|audio\/(mpeg|mp3|wav|x-wav|wave|ogg|opus|mp4|x-m4a|webm|aac|flac))$/;
const LONG = 4000;

/** The outcome of a call: `{result, error, ms, bytes}`. */
export function Result({ outcome, view }) {
  const { result, error, ms } = outcome;
  const state = error ? (error.name === "AbortError" ? "cancelled" : "error") : result.isError ? "tool_error" : "ok";
  return html`<section class="result" aria-label="Result">
    <p class="result-head" role="status"><${Badge} state=${state} /> <span>${duration(ms)}</span>
      ${outcome.bytes !== undefined && html` <span>${bytes(outcome.bytes)}</span>`}</p>
    ${error ? state !== "cancelled" && html`<${Failure} error=${error} />` : html`<${Parts} result=${result} view=${view} />`}
  </section>`;
}

function Failure({ error }) {
  return html`<div class="note bad" role="alert">${error.code !== undefined && html`<code>${String(error.code)}</code> `}${error.message}</div>
    ${error.data !== undefined && html`<${JsonTree} value=${error.data} label="Data of the error" />`}`;
}

function Parts({ result, view }) {
  const { content = [], structuredContent, contents, messages, description, _meta } = result;
  return html`${description && html`<p class="help">${description}</p>`}
    ${messages?.map((each, index) => html`<div class="message" key=${index}><h3>${each.role}</h3>
      ${[each.content].flat().map((block) => html`<${Block} block=${block} view=${view} />`)}</div>`)}
    ${content.map((block, index) => html`<${Block} key=${index} block=${block} view=${view} />`)}
    ${contents?.map((each, index) => html`<${Contents} key=${index} contents=${each} />`)}
    ${!content.length && !contents && !messages && structuredContent === undefined && html`<p class="quiet">The result is empty.</p>`}
    ${structuredContent !== undefined && html`<h3>Structured content</h3><${JsonTree} value=${structuredContent} label="Structured content" />`}
    ${_meta && html`<${Details} summary="_meta" draw=${() => html`<${JsonTree} value=${_meta} label="Metadata" />`} />`}
    <${Details} summary="Whole result as JSON" draw=${() => html`<${JsonTree} value=${result} open=${1} label="Whole result" />`} />`;
}

/** Content that is rendered when it is opened. */
export function Details({ summary, draw }) {
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

/** Plain text: long text is cut, and JSON is also shown as a tree. */
function Text({ text }) {
  const [isWhole, setWhole] = useState(false);
  const [isTree, setTree] = useState(false);
  const value = useMemo(() => jsonOf(text), [text]);
  const shown = isWhole || text.length <= LONG ? text : text.slice(0, LONG);
  return html`<div class="text"><div class="text-tools"><${CopyButton} text=${text} label="Copy text" />
      ${value !== undefined && html`<${Button} aria-pressed=${String(isTree)} onClick=${() => setTree(!isTree)}>As a tree<//>`}</div>
    ${isTree ? html`<${JsonTree} value=${value} label="Text as JSON" />`
      : html`<pre class="code wrap" tabindex="0" role="group" aria-label="Text">${shown}</pre>`}
    ${!isTree && shown.length < text.length && html`<${Button} onClick=${() => setWhole(true)}>Show all ${bytes(text.length)}<//>`}</div>`;
}

function jsonOf(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
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
