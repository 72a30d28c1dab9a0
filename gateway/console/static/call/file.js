/** The control for a file, which is sent as text. */

import { Button, html, useState } from "../components.js";
import { bytes } from "../format.js";

export function File({ field, id, name, value, path, onChange, aria, shared }) {
  const [problem, setProblem] = useState("");
  const read = async ({ target }) => {
    const [file] = target.files;
    if (!file) return;
    try {
      setProblem("");
      onChange(await fileText(file, shared.plainFiles && !/^data-ur/.test(field.schema.format)));
    } catch (error) {
      setProblem(`The file cannot be read: ${error.message}`);
    }
  };
  const known = /^data:([^;,]*)(?:;name=([^;,]*))?/.exec(value ?? "");
  const size = Math.max(0, Math.floor(((value ?? "").length - (value ?? "").indexOf(",") - 1) * 0.75));
  return html`<input type="file" id=${id} data-path=${path} accept=${field.accept || undefined} onChange=${read} ...${aria} />
    ${value !== undefined && html`<p class="file">${known?.[2] ? decoded(known[2]) : "base64"} ${known?.[1]} ${bytes(size)}
      ${" "}<${Button} label=${`Remove the file of ${name}`} onClick=${() => onChange(undefined)}>Remove<//></p>`}
    ${problem && html`<p class="field-problem" role="alert">${problem}</p>`}`;
}

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};

/** Return a file as a `data:` URI with its name, or as base64. */
function fileText(file, isPlain) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onerror = () => reject(reader.error);
    reader.onload = () => {
      const data = reader.result.slice(reader.result.indexOf(",") + 1);
      // encodeURIComponent does not encode these characters, which RFC 3986 §2.2 reserves.
      const name = encodeURIComponent(file.name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16)}`);
      resolve(isPlain ? data : `data:${file.type || "application/octet-stream"};name=${name};base64,${data}`);
    };
    reader.readAsDataURL(file);
  });
}
