/** The request as text for a terminal and for the file. */

import { CopyButton, html } from "../components.js";
import { Fold } from "./result.js";
import { commandOf, curlOf, testOf } from "./copy.js";

export function CopyAs({ request, values, facts, result, isTool }) {
  const common = { ...request, url: facts.endpoint };
  const forms = [
    ["Command line", () => commandOf(common)],
    ["curl", () => curlOf({ ...common, needsToken: facts.caller?.principal != null })],
    ...(isTool ? [["Test for the file", () => testOf({ arguments: values, result })]] : []),
  ];
  const draw = () => forms.map(([name, write]) => html`<div key=${name}><h3>${name}</h3><${Written} write=${write} name=${name} /></div>`);
  return html`<${Fold} summary="Copy as …" draw=${draw} />`;
}

function Written({ write, name }) {
  const text = write();
  return html`<${CopyButton} text=${text} label=${`Copy ${name}`} />
    <pre class="code wrap" tabindex="0" role="group" aria-label=${name}>${text}</pre>`;
}
