/** Prints the copied forms of each request on standard input as JSON. The argument is the revision. */

import { readFileSync } from "node:fs";

import { commandOf, curlOf, testOf } from "../../gateway/console/static/call/copy.js";
import { parse, stringify } from "../../gateway/console/static/call/json.js";
import { REVISION } from "../../gateway/console/static/call/wire.js";

const written = Object.entries(parse(readFileSync(0, "utf8"))).map(([key, { name, values, url, schema, result }]) => {
  const request = { method: "tools/call", params: { name, arguments: values }, url, schema };
  return [key, { command: commandOf(request), curl: curlOf(request), test: testOf({ arguments: values, result }) }];
});
process.stdout.write(stringify(Object.fromEntries(written)).replaceAll(REVISION, process.argv[2]));
