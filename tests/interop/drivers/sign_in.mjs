// Calls a tool whose service requires a sign-in, with the official TypeScript SDK: `node sign_in.mjs VERSION DIRECTORY`.
//
// Reads a plan from standard input, and prints each result and each link that the client is asked to open. Then waits for
// a line: the link was opened. Calls the tool again after an error.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [line, directory] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${directory}/${file}`));
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const plan = JSON.parse((await lines.next()).value);

async function elicit(request) {
  say({ asked: request.params.message, link: request.params.url });
  await lines.next();
  return { action: "accept" };
}

const info = { name: "driver", version: "1" };
const capabilities = plan.asks ? { elicitation: { url: {} } } : {};
const requestInit = { headers: { Authorization: `Bearer ${plan.key}` } };
const named = { name: plan.tool, arguments: {} };
const options = { timeout: 60000 };
let client, transport, call;
if (line === "1") {
  const { Client } = await load("dist/esm/client/index.js");
  const { StreamableHTTPClientTransport } = await load("dist/esm/client/streamableHttp.js");
  const { ElicitRequestSchema } = await load("dist/esm/types.js");
  client = new Client(info, { capabilities });
  if (plan.asks) client.setRequestHandler(ElicitRequestSchema, elicit);
  transport = new StreamableHTTPClientTransport(new URL(plan.url), { requestInit });
  call = () => client.callTool(named, undefined, options);
} else {
  const { Client, StreamableHTTPClientTransport } = await load("dist/index.mjs");
  client = new Client(info, { capabilities, versionNegotiation: { mode: plan.mode } });
  if (plan.asks) client.setRequestHandler("elicitation/create", elicit);
  transport = new StreamableHTTPClientTransport(new URL(plan.url), { requestInit });
  call = () => client.callTool(named, options);
}
await client.connect(transport);
for (;;) {
  const result = await call();
  say({ text: result.content[0].text, isError: result.isError ?? false, revision: transport.protocolVersion });
  if (!result.isError) break;
  await lines.next();
}
await client.close();
process.exit(0);
