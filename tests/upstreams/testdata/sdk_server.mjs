// A server on version 2 of the official TypeScript SDK: `node sdk_server.mjs PACKAGES TRANSPORT [PORT]`.
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [packages, transport, port] = process.argv.slice(2);
const from = (name) => import(pathToFileURL(`${packages}/@modelcontextprotocol/${name}`));
const { McpServer, ResourceTemplate, completable, createMcpHandler, fromJsonSchema } = await from("server/dist/index.mjs");

const takes = (properties) => fromJsonSchema({ type: "object", properties, required: Object.keys(properties) });
const text = (said) => ({ content: [{ type: "text", text: said }] });
const starting = (known) => (value) => known.filter((each) => each.startsWith(value));
const word = { type: "string" };
const more = new Set();
let notify = { toolsChanged() {}, resourceUpdated() {} };

function made() {
  const server = new McpServer(
    { name: "typescript", version: "1" },
    { capabilities: { logging: {}, tools: { listChanged: true }, resources: { subscribe: true } } },
  );
  const tool = (name, inputs, work, rest = {}) =>
    server.registerTool(name, { description: `${name}.`, inputSchema: takes(inputs), ...rest }, work);

  tool(
    "add",
    { a: { type: "integer" }, b: { type: "integer" } },
    ({ a, b }) => ({ ...text(JSON.stringify({ sum: a + b })), structuredContent: { sum: a + b } }),
    { outputSchema: takes({ sum: { type: "integer" } }) },
  );
  tool("picture", {}, () => ({ content: [{ type: "image", data: "iVBORw==", mimeType: "image/png" }] }));
  tool("fail", {}, () => {
    throw new Error("it went wrong");
  });
  tool("count", { to: { type: "integer" } }, async ({ to }, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let progress = 1; progressToken !== undefined && progress <= to; progress++)
      await context.mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: to } });
    return text("counted");
  });
  tool("say", { text: word }, async (given, context) => {
    await context.mcpReq.log("warning", given.text);
    return text("said");
  });
  tool("wait", { mark: word }, ({ mark }, context) => {
    writeFileSync(mark, "began");
    return new Promise((_, reject) => {
      context.mcpReq.signal.addEventListener("abort", () => {
        writeFileSync(mark, "cancelled");
        reject(new Error("cancelled"));
      });
    });
  });
  tool("grow", { name: word }, async ({ name }) => {
    more.add(name);
    notify.toolsChanged();
    return text("grown");
  });
  for (const name of more) tool(name, {}, () => text("more"));
  tool("touch", { uri: word }, ({ uri }) => {
    notify.resourceUpdated(uri);
    return text("touched");
  });
  server.registerResource("note", "note://one", { mimeType: "text/plain" }, (uri) => ({
    contents: [{ uri: uri.href, mimeType: "text/plain", text: "the first note" }],
  }));
  const greeting = new ResourceTemplate("greeting://{name}", {
    list: undefined,
    complete: { name: starting(["ada", "alan"]) },
  });
  server.registerResource("greeting", greeting, {}, (uri, { name }) => ({
    contents: [{ uri: uri.href, text: `hello ${name}` }],
  }));
  const argsSchema = takes({ text: word });
  server.registerPrompt("review", { argsSchema }, (given) => ({
    messages: [{ role: "user", content: { type: "text", text: `Review ${given.text}` } }],
  }));
  return server;
}

if (transport === "stdio") {
  const { serveStdio } = await from("server/dist/stdio.mjs");
  serveStdio(made);
} else {
  const { toNodeHandler } = await from("node/dist/index.mjs");
  const handler = createMcpHandler(made);
  notify = handler.notify;
  createServer(toNodeHandler(handler)).listen(Number(port), "127.0.0.1");
}
