// Prints the schemas of the protocol by revision, which the bundle of the conformance suite contains.
//
// The schemas are literals, followed by a table of revisions. Only this part of the bundle is evaluated.
import { readFileSync } from "node:fs";
import { runInNewContext } from "node:vm";

const bundle = readFileSync(process.argv[2], "utf8");
const table = /const \w+=(\{"2025-03-26":(\w+),[^}]*\})/.exec(bundle);
if (table === null) throw new Error("no table of schemas in this bundle");
const begin = bundle.indexOf(`${table[2]}={$schema:`);
const literals = bundle.slice(begin, table.index).replace(/;\s*$/, "");
const newest = /\[(\w+)\]/.exec(table[1])[1]; // the newest revision is a constant of the bundle
const schemas = runInNewContext(`const ${newest}="2026-07-28",${literals};(${table[1]})`);
process.stdout.write(JSON.stringify(schemas));
