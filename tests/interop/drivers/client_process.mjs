// A long-lived client on version 1.x of the official TypeScript SDK (client_process.py). The first argument is its directory.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const sdk = (file) => import(pathToFileURL(`${process.argv[2]}/dist/esm/${file}.js`));
const { Client } = await sdk("client/index");
const { StreamableHTTPClientTransport } = await sdk("client/streamableHttp");
const { ListRootsRequestSchema, ResourceUpdatedNotificationSchema } = await sdk("types");

const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);
const orders = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const order = async () => JSON.parse((await orders.next()).value ?? '{"end": true}');

const plan = await order();
const client = new Client({ name: "client_process", version: "1" }, { capabilities: {} });
const transport = new StreamableHTTPClientTransport(new URL(plan.url));
client.setNotificationHandler(ResourceUpdatedNotificationSchema, (each) => say({ updated: each.params.uri }));
client.fallbackNotificationHandler = async (each) => say({ changed: each.method });
await client.connect(transport);
await client.subscribeResource({ uri: plan.uri });

let known = transport.sessionId;
say({ session: known });
for (let next = await order(); !("end" in next); next = await order()) {
  try {
    const result = await client.callTool({ name: "echo", arguments: { text: next.call } }, undefined, { timeout: 20000 });
    say({ answer: result.content[0].text });
  } catch (error) {
    say({ failed: String(error) });
  }
  if (transport.sessionId !== known) say({ session: (known = transport.sessionId) });
}
await client.close();
process.exit(0);
