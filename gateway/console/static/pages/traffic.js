/** The Traffic page: running and ended calls, filtered by the URL, and the details of one call. */
import { get } from "../api.js";
import {
  Badge,
  Button,
  Choice,
  Empty,
  Facts,
  Moment,
  PageHead,
  Panel,
  Search,
  Waiting,
  html,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "../components.js";
import { useDocument } from "../data.js";
import { live, onEvent, useLive } from "../events.js";
import { bytes, count, counted, duration, moment } from "../format.js";
import { JsonTree } from "../json-tree.js";
import { link, setQuery } from "../router.js";
import { searchOf } from "../search-text.js";
import { Table } from "../table.js";

const OUTCOMES = [
  ["running", "Running"],
  ["ok", "OK"],
  ["tool_error", "Tool error"],
  ["protocol_error", "Protocol error"],
  ["input_required", "Input required"],
  ["cancelled", "Cancelled"],
];
const METHODS = [
  "tools/call",
  "resources/read",
  "prompts/get",
  "tools/list",
  "resources/list",
  "prompts/list",
  "completion/complete",
  "initialize",
  "server/discover",
  "subscriptions/listen",
];
const FILTERS = ["method", "name", "client", "outcome", "caller", "q"];
const HISTORY = 1000;
const TYPING_MS = 300;

const keyOf = (call) => call.seq;
const open = (call) => setQuery({ open: call.seq });
const search = searchOf((call) => [
  call.name,
  call.method,
  call.client,
  call.caller,
  call.address,
  call.id,
  call.sessionId,
  call.outcome,
]);

const COLUMNS = [
  { key: "at", label: "Time", width: "5.2rem", cell: (call) => moment(call.at) },
  {
    key: "outcome",
    label: "Outcome",
    width: "7.5rem",
    cell: (call) => html`<${Badge} state=${call.outcome} />`,
  },
  {
    key: "name",
    label: "Name",
    width: "minmax(7rem, 1.5fr)",
    cell: (call) => html`<span class="mono">${call.name ?? "–"}</span>`,
  },
  { key: "method", label: "Method", width: "minmax(6rem, 1fr)", from: 620, cell: (call) => call.method },
  {
    key: "ms",
    label: "Duration",
    width: "5rem",
    class: "number",
    from: 430,
    cell: (call) => (call.ms === null ? "…" : duration(call.ms)),
  },
  { key: "client", label: "Client", width: "minmax(6rem, 1fr)", from: 760, cell: (call) => call.client },
  {
    key: "caller",
    label: "Caller",
    width: "minmax(5rem, .8fr)",
    from: 900,
    cell: (call) => call.caller ?? call.address,
  },
  { key: "revision", label: "Revision", width: "6.2rem", from: 1050, cell: (call) => call.revision },
  { key: "transport", label: "Transport", width: "minmax(6rem, .8fr)", from: 1200, cell: (call) => call.transport },
  {
    key: "bytes",
    label: "Response",
    width: "6rem",
    class: "number",
    from: 980,
    cell: (call) => bytes(call.responseBytes),
  },
];

function matcher(query) {
  const hasWords = search(query.get("q"));
  const exact = ["method", "name", "outcome"].map((name) => [name, query.get(name)]).filter(([, value]) => value);
  const within = ["client", "caller"]
    .map((name) => [name, query.get(name)?.toLowerCase()])
    .filter(([, value]) => value);
  return (call) =>
    exact.every(([name, value]) => call[name] === value) &&
    within.every(([name, value]) => (call[name] ?? "").toLowerCase().includes(value)) &&
    hasWords(call);
}

/** Fetch past calls when the page opens and when its filters change. Return `{data, error}`. */
function useHistory(filters) {
  const [answer, setAnswer] = useState({ data: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    const load = async () => {
      try {
        const { calls } = await get(`calls?${new URLSearchParams([...filters, ["limit", HISTORY]])}`, {
          signal: abort.signal,
        });
        for (const call of calls) live.calls.put(call);
        live.calls.version += 1;
        setAnswer({ data: calls, error: null });
      } catch (error) {
        if (error.name !== "AbortError") setAnswer({ data: null, error });
      }
    };
    setAnswer({ data: null, error: null });
    const timer = setTimeout(load, filters.length ? TYPING_MS : 0);
    const end = onEvent("hello", load);
    return () => {
      abort.abort();
      clearTimeout(timer);
      end();
    };
  }, [String(filters)]);
  return answer;
}

export default function Traffic({ query }) {
  const version = useLive((store) => store.calls.version);
  const skipped = useLive((store) => store.calls.skipped);
  const isPaused = query.get("paused") === "1";
  const follow = query.get("follow") !== "0" && !isPaused;
  const filters = FILTERS.map((name) => [name, query.get(name)]).filter(([, value]) => value);
  const history = useHistory(filters);
  // Compared as text, because every render creates another array.
  const matches = useMemo(() => matcher(query), [String(filters)]);
  const frozen = useRef(null);
  if (!isPaused) frozen.current = null;
  // A number instead of a copy of the list, so that the end of calls is shown.
  else frozen.current ??= live.calls.newest;
  const rows = useMemo(() => {
    const known = live.calls.calls.filter(
      (call) => (frozen.current === null || call.seq <= frozen.current) && matches(call),
    );
    return known.reverse();
  }, [version, history.data, matches, isPaused]);
  const waiting = isPaused ? live.calls.after(frozen.current) : 0;
  const openSeq = query.get("open");
  return html`<${PageHead} title="Traffic" summary=${`${counted(rows.length, "call")}${waiting ? `, ${count(waiting)} new` : ""}${skipped ? `, ${count(skipped)} not shown` : ""}`}>
      <${Button} aria-pressed=${String(isPaused)} onClick=${() => setQuery({ paused: isPaused ? null : "1" }, { replace: true })}>${isPaused ? "Resume" : "Pause"}<//>
      <${Button} aria-pressed=${String(follow)} onClick=${() => setQuery({ follow: follow ? "0" : null, paused: null }, { replace: true })}>Follow<//>
    <//>
    <div class="filters" role="search" aria-label="Filter the calls">
      <${Search} query=${query} label="Search calls" />
      <${Choice} query=${query} name="outcome" label="Outcome" options=${OUTCOMES} />
      <${Choice} query=${query} name="method" label="Method" options=${METHODS} />
      ${["name", "client", "caller"].filter((name) => query.get(name)).map((name) => html`<${Button} key=${name} label=${`Remove the filter ${name}`} onClick=${() => setQuery({ [name]: null })}>${name}: ${query.get(name)} ✕<//>`)}
    </div>
    ${history.error && html`<${Waiting} document=${history} />`}
    <div class="split">
      <${Table} label="Calls" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} onOpen=${open} openKey=${openSeq && Number(openSeq)}
        follow=${follow} onScrolledAway=${() => setQuery({ follow: "0" }, { replace: true })}
        empty=${history.data ? html`<${Nothing} filtered=${filters.length > 0} />` : !history.error && html`<${Waiting} document=${history} />`} />
      ${openSeq && html`<${Details} key=${openSeq} seq=${openSeq} />`}
    </div>`;
}

const Nothing = ({ filtered }) =>
  filtered
    ? html`<${Empty} title="No call matches"><a href=${link("traffic")}>Remove all filters</a><//>`
    : html`<${Empty} title="No calls yet">
      <p>Calls appear here when they start. <a href=${link("overview")}>Connect a client</a> or <a href=${link("call")}>call a tool</a>.</p><//>`;

function Details({ seq }) {
  const document = useDocument(`calls/${encodeURIComponent(seq)}`);
  const listed = useLive((store) => store.calls.find(Number(seq)));
  const ended = listed?.ms ?? null;
  useEffect(() => {
    // The stream reports the end of a call, but only the document contains the bodies.
    if (document.data?.ms === null && ended !== null) document.refresh();
  }, [ended]);
  const call = document.data ?? listed;
  return html`<${Panel} title=${call ? (call.name ?? call.method) : `Call ${seq}`} onClose=${() => setQuery({ open: null })}>
    <${Waiting} document=${document} />
    ${call && html`<${CallFacts} call=${call} />`}
    ${document.data && html`<${Bodies} call=${document.data} />`}
  <//>`;
}

function CallFacts({ call }) {
  const by = (name, value) => value && html`<a href=${link("traffic", { [name]: value })}>${value}</a>`;
  return html`<p><${Badge} state=${call.outcome} /> ${duration(call.ms)}</p>
    <${Facts} pairs=${[
      ["Began", html`<${Moment} at=${call.at} />`],
      ["Method", by("method", call.method)],
      ["Name", by("name", call.name)],
      ["Caller", by("caller", call.caller)],
      ["Address", call.address],
      ["Client", by("client", call.client)],
      ["Revision", `${call.revision} (${call.era})`],
      ["Transport", call.transport],
      ["View", call.view],
      ["Session", call.sessionId && html`<a href=${link("sessions", { open: call.sessionId })}>${call.sessionId}</a>`],
      ["Sizes", `${bytes(call.requestBytes)} in, ${bytes(call.responseBytes)} out`],
      ["Trace", call.traceId && html`<code>${call.traceId}</code>`],
      ["Request id", call.id],
      ["Waited for", call.waits?.map((wait) => `${wait.for} ${duration(wait.ms)}`).join(", ")],
    ]} />
  `;
}

function Bodies({ call }) {
  return html`<${Body} title="Request" value=${call.request} truncated=${call.requestTruncated} />
    <${Body} title="Response" value=${call.response} truncated=${call.responseTruncated} running=${call.ms === null} />
    ${
      call.progress?.length > 0 &&
      html`<h3>Progress</h3><ul class="list">
      ${call.progress.map(
        (each, at) => html`<li key=${at}>
        ${each.progress ?? ""}${each.total ? ` of ${each.total}` : ""} ${each.message ?? ""}</li>`,
      )}</ul>`
    }
    ${
      call.log?.length > 0 &&
      html`<h3>Log</h3><ul class="list">${call.log.map(
        (line, at) => html`<li key=${at}>
      <${LogLine} line=${line} /></li>`,
      )}</ul>`
    }`;
}

function Body({ title, value, truncated, running }) {
  const none = running ? "The call is still running." : "Not kept.";
  return html`<h3>${title}</h3>
    ${truncated && html`<p class="note warn">Truncated, because it exceeds the maximum size.</p>`}
    ${
      value === null || value === undefined
        ? html`<p class="quiet">${none}
      </p>`
        : html`<${JsonTree} value=${value} open=${4} label=${title} />`
    }`;
}

function LogLine({ line }) {
  const { at, level, event, ...rest } = line;
  const more = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`,
  );
  return html`<span class="quiet">${moment(at)}</span> <${Badge} state=${level} /> ${event} <span class="quiet">
    ${more.join(" ")}</span>`;
}
