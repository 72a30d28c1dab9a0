/** Dialogs for input requests: elicitation, sampling, roots and confirmations. */

import { Button, Dialog, html, useEffect, useRef, useState } from "../components.js";
import { webAddress } from "./address.js";
import { problemsOf } from "./check.js";
import { Field } from "./form.js";
import { initial } from "./schema.js";

/** Shows one request after the other. `onDone` receives the responses by key. `onCancel` ends the call. */
export function Questions({ requests, onDone, onCancel, isDestructive }) {
  const [answers, setAnswers] = useState({});
  const entries = Object.entries(requests);
  const [key, { method, params = {} }] = entries.find(([each]) => !(each in answers)) ?? entries[0];
  const answer = (value) => {
    const next = { ...answers, [key]: value };
    setAnswers(next);
    if (entries.every(([each]) => each in next)) onDone(next);
  };
  const Kind = KINDS[params.mode === "url" ? "url" : method] ?? Unknown;
  return html`<${Kind} key=${key} params=${params} method=${method} onAnswer=${answer} onCancel=${onCancel} isDestructive=${isDestructive} />`;
}

/** What the buttons of a question do. `accept` is the label of the first. */
const Choices = ({ accept }) => html`<dl class="help choices">
  <div><dt>${accept}</dt><dd>sends your answer, and the call continues.</dd></div>
  <div><dt>Decline</dt><dd>refuses. The tool decides what happens without an answer.</dd></div>
  <div><dt>Cancel</dt><dd>closes the question without a decision. The tool can ask again.</dd></div></dl>`;

function Elicitation({ params, onAnswer, isDestructive }) {
  const root = params.requestedSchema ?? {};
  const [value, setValue] = useState(() => initial(root, root) ?? {});
  const [isTried, setTried] = useState(false);
  const problems = problemsOf(root, value, root);
  const accept = () => (problems.length ? setTried(true) : onAnswer({ action: "accept", content: value }));
  const shared = { root, problems: isTried ? problems : [], epoch: 0 };
  return html`<${Question} title="Input requested" onDismiss=${() => onAnswer({ action: "cancel" })} onAccept=${accept}
      buttons=${html`<${Button} onClick=${() => onAnswer({ action: "decline" })}>Decline<//>`} accept="Accept" isDestructive=${isDestructive}>
    <p class="asked">${params.message}</p>
    ${Object.keys(root.properties ?? {}).length > 0
      && html`<${Field} schema=${root} name="answer" value=${value} path="" isRequired isRoot onChange=${setValue} shared=${shared} />`}
    <${Choices} accept="Accept" />
  <//>`;
}

function UrlElicitation({ params, onAnswer }) {
  const [isOpened, setOpened] = useState(false);
  const address = webAddress(params.url);
  return html`<${Question} title="The call requests that you open a page" accept="I have done it" onDismiss=${() => onAnswer({ action: "cancel" })}
      onAccept=${() => onAnswer({ action: "accept" })} buttons=${html`<${Button} onClick=${() => onAnswer({ action: "decline" })}>Decline<//>`}>
    <p class="asked">${params.message}</p>
    ${address
      ? html`<p>It opens another site: <b>${address.host}</b>. Open it only if you trust it:</p>`
      : html`<p>This is not the URL of a web page:</p>`}
    <p><code class="url">${address ? address.href : String(params.url)}</code></p>
    ${address && (isOpened
      ? html`<p><a href=${address.href} target="_blank" rel="noreferrer noopener">Open the page in a new tab</a></p>`
      : html`<${Button} onClick=${() => setOpened(true)}>I trust this site<//>`)}
    <${Choices} accept="I have done it" />
  <//>`;
}

function Sampling({ params, onAnswer, onCancel }) {
  const [text, setText] = useState("");
  const content = { type: "text", text };
  return html`<${Question} title="The call requests a model response" accept="Answer" onDismiss=${onCancel} dismiss="Cancel the call"
      onAccept=${() => onAnswer({ role: "assistant", content, model: "console operator", stopReason: "endTurn" })}>
    ${params.systemPrompt && html`<p class="help">${params.systemPrompt}</p>`}
    ${(params.messages ?? []).map((each, index) => html`<div class="asked" key=${index}><b>${each.role}</b>
      ${[each.content].flat().map((block) => html` ${block.text ?? `(${block.type})`}`)}</div>`)}
    <label class="stacked">Your answer in its place
      <textarea rows="4" value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>
  <//>`;
}

function Roots({ onAnswer, onCancel }) {
  const [text, setText] = useState("");
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const isRight = lines.every((line) => line.startsWith("file://"));
  return html`<${Question} title="The call requests roots" accept="Answer" onDismiss=${onCancel} dismiss="Cancel the call"
      onAccept=${() => isRight && onAnswer({ roots: lines.map((uri) => ({ uri })) })}>
    <label class="stacked">URIs that start with file://, one per line; leave empty for no roots<textarea rows="3" value=${text}
      aria-invalid=${isRight ? undefined : "true"} onInput=${(event) => setText(event.target.value)}></textarea></label>
  <//>`;
}

function Unknown({ method, onCancel }) {
  return html`<${Question} title="The call sent an unsupported request" onDismiss=${onCancel} dismiss="Cancel the call">
    <p><code>${method}</code></p><//>`;
}

const KINDS = { "elicitation/create": Elicitation, url: UrlElicitation, "sampling/createMessage": Sampling, "roots/list": Roots };

/** A dialog with one response. Escape dismisses it, and Ctrl+Enter accepts. */
export function Question({ title, accept, onAccept, onDismiss, dismiss = "Cancel", buttons, isDestructive, children }) {
  const body = useRef(null);
  const isOver = useRef(false);
  useEffect(() => {
    body.current.querySelector("input, select, textarea")?.focus();
    return () => {
      isOver.current = true;
    };
  }, []);
  // Removing the dialog closes it too, without a response.
  const close = () => isOver.current || onDismiss();
  const keys = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    onAccept?.();
  };
  return html`<${Dialog} title=${title} onClose=${close} isDestructive=${isDestructive}>
    <div ref=${body} class="question" onKeyDown=${keys}>${children}
      <div class="dialog-buttons"><${Button} onClick=${close}>${dismiss}<//>${buttons}
        ${accept && html`<${Button} kind=${isDestructive ? "danger-primary" : "primary"} onClick=${onAccept}>${accept}<//>`}</div></div>
  <//>`;
}
