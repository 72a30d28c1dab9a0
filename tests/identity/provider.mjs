// An OpenID Provider with the development pages of oidc-provider: `node provider.mjs PACKAGE ISSUER CONFIGURATION`.
//
// Any user name is accepted. `/control` returns all requests with their parameters and responses. A POST changes options.
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const { default: Provider } = await import(pathToFileURL(`${process.argv[2]}/lib/index.js`));
const issuer = process.argv[3];
const { clients, groups } = JSON.parse(process.argv[4]);
const defaults = { accessTokenSeconds: 3600, requiresNonce: false, origins: {} };
let options = { ...defaults };
let requests = [];

const provider = new Provider(issuer, {
  clients,
  claims: { openid: ["sub", "groups"] },
  clientDefaults: { grant_types: ["authorization_code", "refresh_token"] },
  conformIdTokenClaims: false,
  cookies: { keys: [randomBytes(16).toString("hex")] },
  features: {
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => options.requiresNonce },
    introspection: { enabled: true, allowedPolicy: () => true },
    registration: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: "read write tools.use",
        audience: resource,
        accessTokenFormat: resource.endsWith("/jwt") ? "jwt" : "opaque",
        accessTokenTTL: options.accessTokenSeconds,
      }),
      useGrantedResource: () => true,
    },
    revocation: { enabled: true },
  },
  // Client metadata documents are fetched from public addresses only, unless this function maps them.
  fetch: (url, init) => fetch(mapped(url), { ...init, dispatcher: undefined }),
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId, groups: groups[accountId] ?? [] }) }),
  pkce: { required: () => true },
  rotateRefreshToken: true,
  scopes: ["openid", "offline_access", "read", "write", "tools.use"],
  ttl: { AccessToken: () => options.accessTokenSeconds },
});

function mapped(url) {
  const { origin, pathname } = new URL(url);
  return origin in options.origins ? `${options.origins[origin]}${pathname}` : url;
}

provider.use(async (ctx, next) => {
  await next();
  const body = ctx.body !== null && typeof ctx.body === "object" && !ctx.body.pipe ? ctx.body : null;
  requests.push({
    method: ctx.method,
    path: ctx.path,
    status: ctx.status,
    authorization: ctx.get("authorization"),
    parameters: { ...ctx.oidc?.params },
    body,
    location: ctx.response.get("location") ?? "",
  });
});

async function control(request, response) {
  let text = "";
  for await (const chunk of request) text += chunk;
  if (request.method === "POST") {
    const { forgotten = [], ...changed } = JSON.parse(text);
    options = { ...defaults, ...changed };
    for (const token of forgotten) await (await provider.AccessToken.find(token))?.destroy();
  }
  if (request.method === "DELETE") requests = [];
  response.setHeader("Content-Type", "application/json");
  response.end(JSON.stringify(requests));
}

const handle = provider.callback();
createServer((request, response) =>
  request.url === "/control" ? control(request, response) : handle(request, response),
).listen(Number(new URL(issuer).port), "127.0.0.1");
