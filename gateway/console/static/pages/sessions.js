/** The Sessions page: sessions, open streams, and clients by kind. */
import { remove } from "../api.js";
import { REVISION } from "../call/wire.js";
import {
  ConfirmButton,
  Empty,
  Facts,
  Filters,
  Moment,
  PageHead,
  Panel,
  Tabs,
  Waiting,
  html,
  useMemo,
} from "../components.js";
import { useDocument } from "../data.js";
import { ago, count, counted } from "../format.js";
import { link, setQuery } from "../router.js";
import { searchOf } from "../search-text.js";
import { Table } from "../table.js";

const TABS = [
  ["sessions", "Sessions"],
  ["streams", "Streams"],
  ["clients", "Clients"],
];
const search = searchOf((row) => [
  row.id,
  row.client,
  row.principal,
  row.address,
  row.revision,
  row.transport,
  row.subscriptions?.join(" "),
]);
const client = {
  key: "client",
  label: "Client",
  width: "minmax(8rem, 1.4fr)",
  cell: (row) => row.client ?? `${counted(row.kinds ?? 0, "other kind")}`,
};
const revision = { key: "revision", label: "Revision", width: "6rem", from: 560, cell: (row) => row.revision ?? "" };
const transport = {
  key: "transport",
  label: "Transport",
  width: "8.6rem",
  from: 760,
  cell: (row) => row.transport ?? "",
};
const caller = {
  key: "caller",
  label: "Caller",
  width: "minmax(6rem, 1fr)",
  from: 430,
  cell: (row) => row.principal ?? row.address ?? "",
};

const COLUMNS = {
  sessions: [
    client,
    caller,
    revision,
    transport,
    { key: "lastUsed", label: "Last used", width: "7rem", cell: (row) => ago(row.lastUsedAt) },
    { key: "created", label: "Opened", width: "7rem", from: 900, cell: (row) => ago(row.createdAt) },
    { key: "calls", label: "Calls", width: "5rem", class: "number", from: 640, cell: (row) => count(row.calls) },
    {
      key: "streams",
      label: "Streams",
      width: "5.5rem",
      class: "number",
      from: 980,
      cell: (row) => count(row.streams),
    },
  ],
  streams: [
    { key: "kind", label: "Kind", width: "5rem", cell: (row) => row.kind },
    client,
    caller,
    revision,
    transport,
    { key: "created", label: "Opened", width: "7rem", cell: (row) => ago(row.createdAt) },
    {
      key: "subscriptions",
      label: "Subscriptions",
      width: "8rem",
      class: "number",
      from: 900,
      cell: (row) => count(row.subscriptions?.length ?? 0),
    },
  ],
  clients: [
    client,
    revision,
    transport,
    { key: "era", label: "Era", width: "5rem", from: 500, cell: (row) => row.era ?? "" },
    { key: "sessions", label: "Sessions", width: "6.5rem", class: "number", cell: (row) => count(row.sessions) },
  ],
};
const KEYS = {
  sessions: (row) => row.id,
  streams: (row) => row.key,
  clients: (row) => `${row.client} ${row.era} ${row.revision} ${row.transport}`,
};

/** Streams have no id, so similar streams are counted. */
function withKeys(streams) {
  const seen = new Map();
  return streams.map((stream) => {
    const key = [stream.kind, stream.id, stream.client, stream.address, stream.createdAt].join(" ");
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return { ...stream, key: `${key} ${seen.get(key)}` };
  });
}

export default function Sessions({ query }) {
  const document = useDocument("sessions", { on: ["session"], everyMs: 10_000 });
  const { data } = document;
  const tab = query.get("tab") in COLUMNS ? query.get("tab") : "sessions";
  const text = query.get("q") ?? "";
  const lists = useMemo(
    () =>
      data && {
        sessions: data.sessions,
        streams: withKeys(data.streams ?? []),
        clients: data.clients?.sessions ?? [],
      },
    [data],
  );
  const rows = useMemo(() => (lists?.[tab] ?? []).filter(search(text)), [lists, tab, text]);
  const openId = tab === "sessions" ? query.get("open") : null;
  return html`<${PageHead} title="Sessions" summary=${data && `${counted(data.total, "session")}, ${counted(lists.streams.length, "open stream")}`} />
    <${Tabs} label="Lists" tabs=${TABS} value=${tab} onChange=${(value) => setQuery({ tab: value === "sessions" ? null : value, open: null })} />
    <${Filters} query=${query} label="Search clients and callers" />
    <${Waiting} document=${document} />
    ${
      data &&
      html`<div class="split">
      <${Table} key=${tab} label=${TABS.find(([each]) => each === tab)[1]} columns=${COLUMNS[tab]} rows=${rows} keyOf=${KEYS[tab]}
        onOpen=${tab === "sessions" ? (row) => setQuery({ open: row.id }) : null} openKey=${openId} empty=${html`<${Nothing} searched=${text} />`} />
      ${openId && html`<${Details} session=${data.sessions.find((each) => each.id === openId)} id=${openId} onEnded=${document.refresh} />`}
    </div>`
    }`;
}

const Nothing = ({ searched: text }) =>
  text
    ? html`<${Empty} title="Nothing matches"><a href=${link("sessions")}>Remove the search</a><//>`
    : html`<${Empty} title="None open">
      <p>Clients of the revision ${REVISION} have no sessions: see their calls in <a href=${link("traffic")}>Traffic</a>.</p><//>`;

function Details({ session, id, onEnded }) {
  const close = () => setQuery({ open: null });
  if (!session) return html`<${Panel} title=${id} onClose=${close}><p class="quiet">This session has ended.</p><//>`;
  const end = async () => {
    await remove(`sessions/${encodeURIComponent(id)}`);
    close();
    onEnded();
  };
  const actions = html`<${ConfirmButton} title="End this session?" question=${`${session.client} must connect again, and its running calls are cancelled.`} action=${end}>End session<//>`;
  return html`<${Panel} title=${session.client} actions=${actions} onClose=${close}>
    <${Facts} pairs=${[
      ["Session", html`<code>${session.id}</code>`],
      ["Caller", session.principal],
      ["Address", session.address],
      ["Revision", session.revision],
      ["Transport", session.transport],
      ["Opened", html`<${Moment} at=${session.createdAt} />`],
      ["Last used", html`<${Moment} at=${session.lastUsedAt} />`],
      ["Calls", html`<a href=${link("traffic", { q: session.id })}>${count(session.calls)}</a>`],
      ["Streams", count(session.streams)],
    ]} />
    <h3>Subscriptions</h3>
    ${
      session.subscriptions?.length
        ? html`<ul class="list">${session.subscriptions.map(
            (uri) => html`<li key=${uri}>
      <code>${uri}</code></li>`,
          )}</ul>`
        : html`<p class="quiet">None</p>`
    }
  <//>`;
}
