/** The Upstreams page: state, definitions and errors of other servers. */
import { post } from "../api.js";
import {
  Badge,
  Button,
  Code,
  Empty,
  Facts,
  Filters,
  Moment,
  PageHead,
  Panel,
  Waiting,
  html,
  useMemo,
  useState,
} from "../components.js";
import { useDocument } from "../data.js";
import { count, counted } from "../format.js";
import { link, setQuery } from "../router.js";
import { searchOf } from "../search-text.js";
import { Table } from "../table.js";

const keyOf = (upstream) => upstream.name;
const search = searchOf((upstream) => [
  upstream.name,
  upstream.state,
  upstream.reason,
  upstream.server?.name,
  upstream.transport,
]);
const nameOf = (server) => (server ? [server.name, server.version].filter(Boolean).join(" ") : "");
const offersOf = (offers) =>
  Object.entries(offers ?? {})
    .filter(([, size]) => size)
    .map(([kind, size]) => [size, kind.replaceAll("_", " ")])
    .map(([size, words]) => counted(size, words.replace(/s$/, ""), words))
    .join(", ");

const COLUMNS = [
  {
    key: "name",
    label: "Name",
    width: "minmax(7rem, 1fr)",
    cell: (each) => html`<span class="mono">${each.name}</span>`,
  },
  { key: "state", label: "State", width: "7rem", cell: (each) => html`<${Badge} state=${each.state} />` },
  {
    key: "offers",
    label: "Offers",
    width: "minmax(8rem, 1.6fr)",
    from: 560,
    cell: (each) => each.reason ?? offersOf(each.offers),
  },
  { key: "server", label: "Server", width: "minmax(7rem, 1fr)", from: 760, cell: (each) => nameOf(each.server) },
  { key: "transport", label: "Transport", width: "8rem", from: 900, cell: (each) => each.transport },
  { key: "revision", label: "Revision", width: "6rem", from: 980, cell: (each) => each.revision ?? "" },
  {
    key: "errors",
    label: "Errors",
    width: "4.5rem",
    class: "number",
    from: 430,
    cell: (each) => count(each.errors?.length ?? 0),
  },
];

export default function Upstreams({ query }) {
  const document = useDocument("upstreams", { on: ["upstream", "reload"], everyMs: 10_000 });
  const { data } = document;
  const text = query.get("q") ?? "";
  const rows = useMemo(() => (data?.upstreams ?? []).filter(search(text)), [data, text]);
  const openName = query.get("open");
  const opened = data?.upstreams.find((each) => each.name === openName);
  return html`<${PageHead} title="Upstreams" summary=${data && counted(data.upstreams.length, "upstream")} />
    ${data?.upstreams.length > 0 && html`<${Filters} query=${query} label="Search upstreams" />`}
    <${Waiting} document=${document} />
    ${
      data &&
      html`<div class="split">
      <${Table} label="Upstreams" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} onOpen=${(each) => setQuery({ open: each.name })} openKey=${openName}
        empty=${html`<${Nothing} searched=${text} />`} />
      ${openName && html`<${Details} key=${openName} name=${openName} upstream=${opened} onDone=${document.refresh} />`}
    </div>`
    }`;
}

const Nothing = ({ searched: text }) =>
  text
    ? html`<${Empty} title="No upstream matches"><a href=${link("upstreams")}>Remove the search</a><//>`
    : html`<${Empty} title="No upstreams">
      <p>An entry of <code>upstreams:</code> in the file puts another MCP server behind this gateway.</p>
        <a href=${link("config")}>Show the file</a><//>`;

function Details({ name, upstream, onDone }) {
  const close = () => setQuery({ open: null });
  if (!upstream)
    return html`<${Panel} title=${name} onClose=${close}><p class="quiet">The file no longer contains this upstream.</p>
      <//>`;
  return html`<${Panel} title=${name} actions=${html`<${Reconnect} name=${name} onDone=${onDone} />`} onClose=${close}>
    <p><${Badge} state=${upstream.state} /> ${upstream.reason}</p>
    <${Facts} pairs=${[
      ["Server", nameOf(upstream.server)],
      ["Transport", upstream.transport],
      ["Revision", upstream.revision],
      ["Since", html`<${Moment} at=${upstream.since} />`],
      ["Next attempt", upstream.nextTryAt && html`<${Moment} at=${upstream.nextTryAt} />`],
      ["Sessions", upstream.sessions],
      ["Offers", offersOf(upstream.offers)],
      ["Catalog", html`<a href=${link("catalog", { q: name })}>Definitions</a>`],
    ]} />
    <h3>Last errors</h3>
    ${
      upstream.errors?.length
        ? html`<ul class="list">
      ${[...upstream.errors].reverse().map(
        (error, at) => html`<li key=${at}><span class="quiet">
        <${Moment} at=${error.at} /></span> ${error.message}</li>`,
      )}</ul>`
        : html`<p class="quiet">None</p>`
    }
    ${
      upstream.stderr &&
      html`<h3>Standard error</h3>
      ${upstream.stderr.length ? html`<${Code} text=${upstream.stderr.join("\n")} label="Standard error" />` : html`<p class="quiet">Nothing was written.</p>`}`
    }
  <//>`;
}

function Reconnect({ name, onDone }) {
  const [answer, setAnswer] = useState("");
  const reconnect = async () => {
    try {
      await post(`upstreams/${encodeURIComponent(name)}/reconnect`);
      setAnswer("Asked for");
    } catch (error) {
      setAnswer(error.message);
    }
    onDone();
  };
  return html`<span role="status">${answer}</span> <${Button} onClick=${reconnect}>Reconnect now<//>`;
}
