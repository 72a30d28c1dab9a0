/** Writes what the Call page would copy: reads requests as a JSON object, prints the forms of each as JSON. */

import { readFileSync } from "node:fs";

import { commandOf, curlOf, testOf } from "../../gateway/console/static/call/copy.js";
import { parse, stringify } from "../../gateway/console/static/call/json.js";

const written = Object.entries(parse(readFileSync(0, "utf8"))).map(([key, { name, values, url, schema, result }]) => {
  const request = { method: "tools/call", params: { name, arguments: values }, url, schema };
  return [key, { command: commandOf(request), curl: curlOf(request), test: testOf({ arguments: values, result }) }];
});
process.stdout.write(stringify(Object.fromEntries(written)));
