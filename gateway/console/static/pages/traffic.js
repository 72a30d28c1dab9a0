/** The Traffic page: running and ended calls, filtered by the URL, and the details of one call. */
import { get } from "../api.js";
import {
  Badge,
  Button,
  Empty,
  Facts,
  Filters,
  Moment,
  PageHead,
  Panel,
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
import { prepare } from "../call/history.js";
import { Failure, Fold, Parts } from "../call/result.js";

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
/** What the gateway shows in the place of secrets. */
const MASK = "***";
/** Narrower tables, in pixels, have two lines per row. */
const NARROW = 620;
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
  call.reason,
]);

const COLUMNS = [
  { key: "at", label: "Time", width: "5.2rem", cell: (call) => moment(call.at) },
  {
    key: "outcome",
    label: "Outcome",
    width: "7.6rem",
    cell: (call) => html`<${Badge} state=${call.outcome} />`,
  },
  {
    key: "name",
    label: "Name",
    width: "minmax(7rem, 1.2fr)",
    cell: (call) => html`<span class="mono">${call.name ?? "–"}</span>`,
  },
  {
    key: "reason",
    label: "Error",
    width: "minmax(9rem, 4fr)",
    from: NARROW,
    cell: (call) => html`<span class="reason" title=${call.reason}>${call.reason}</span>`,
  },
  {
    key: "ms",
    label: "Duration",
    width: "5.2rem",
    class: "number",
    from: 430,
    cell: (call) => (call.ms === null ? "…" : duration(call.ms)),
  },
  { key: "method", label: "Method", width: "minmax(6.5rem, .8fr)", from: 760, cell: (call) => call.method },
  { key: "client", label: "Client", width: "minmax(6rem, 1fr)", from: 880, cell: (call) => call.client },
  {
    key: "caller",
    label: "Caller",
    width: "minmax(6rem, .8fr)",
    from: 1000,
    cell: (call) => call.caller ?? call.address,
  },
  { key: "transport", label: "Transport", width: "8.6rem", from: 1120, cell: (call) => call.transport },
  { key: "revision", label: "Revision", width: "6.2rem", from: 1280, cell: (call) => call.revision },
  {
    key: "bytes",
    label: "Response",
    width: "5.5rem",
    class: "number",
    from: 1380,
    cell: (call) => bytes(call.responseBytes),
  },
  {
    key: "more",
    label: "Error or client",
    below: NARROW,
    cell: (call) =>
      call.reason
        ? html`<span class="reason">${call.reason}</span>`
        : html`<span class="quiet">${[call.method, call.client].filter(Boolean).join(", ")}</span>`,
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
    <${Filters} query=${query} label="Search calls" chips=${["name", "client", "caller"]} choices=${[
      { name: "outcome", label: "Outcome", options: OUTCOMES },
      { name: "method", label: "Method", options: METHODS },
    ]} />
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
  return html`<${Panel} title=${call ? (call.name ?? call.method) : `Call ${seq}`} onClose=${() => setQuery({ open: null })}
      actions=${document.data && html`<${CallAgain} call=${document.data} />`}>
    <${Waiting} document=${document} />
    ${call && html`<p><${Badge} state=${call.outcome} /> ${duration(call.ms)}</p>`}
    ${document.data && html`<${Answer} call=${document.data} />`}
    ${document.data && html`<${Request} call=${document.data} />`}
    ${call && html`<h3>Details</h3><${CallFacts} call=${call} />`}
    ${document.data && html`<${Reports} call=${document.data} />`}
  <//>`;
}

const TARGETS = { "tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource" };

/** A link to the Call page, with the arguments of a call except masked ones. Not shown if they are not kept. */
function CallAgain({ call }) {
  const { name, uri, arguments: values = {} } = call.request?.params ?? {};
  const kind = TARGETS[call.method];
  if (!kind || call.requestTruncated) return null;
  const shown = Object.entries(values).filter(([, value]) => !JSON.stringify(value).includes(MASK));
  return html`<a class="button" href=${link("call", { [kind]: uri ?? name, view: call.view })}
    onClick=${() => prepare(uri ?? name, Object.fromEntries(shown))}>Call again</a>`;
}

function CallFacts({ call }) {
  const by = (name, value) =>
    value && html`<a class="chip" title=${`Show only calls with this ${name}`} href=${link("traffic", { [name]: value })}>${value}</a>`;
  return html`<${Facts} pairs=${[
    ["Started", html`<${Moment} at=${call.at} />`],
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
    ["Limit", call.limit && html`<code>${call.limit}</code>`],
    ["Trace", call.traceId && html`<code>${call.traceId}</code>`],
    ["Request id", call.id],
    ["Waited for", call.waits?.map((wait) => `${wait.for} ${duration(wait.ms)}`).join(", ")],
  ]} />`;
}

/** The result or error of a call, and its message as JSON. */
function Answer({ call }) {
  const { response, responseTruncated } = call;
  const title = html`<h3>Answer</h3>`;
  if (response === null || response === undefined)
    return html`${title}<p class="quiet">${call.ms === null ? "The call is still running." : "Not kept."}</p>`;
  if (responseTruncated) return html`${title}<${Cut} /><${JsonTree} value=${response} label="Response" />`;
  if (response.error) return html`${title}<${Failure} error=${response.error} />`;
  if (!(call.method in TARGETS)) return html`${title}<${JsonTree} value=${response.result} label="Response" />`;
  return html`${title}<${Parts} result=${response.result} view=${call.view} />`;
}

function Request({ call }) {
  const { request, requestTruncated } = call;
  const title = html`<h3>Request</h3>`;
  if (request === null || request === undefined) return html`${title}<p class="quiet">Not kept.</p>`;
  if (requestTruncated) return html`${title}<${Cut} /><${JsonTree} value=${request} label="Request" />`;
  const { _meta, ...params } = request.params ?? {};
  return html`${title}<${JsonTree} value=${params} open=${4} label="Request" />
    <${Fold} summary="Whole request as JSON" draw=${() => html`<${JsonTree} value=${request} open=${4} label="Whole request" />`} />`;
}

const Cut = () => html`<p class="note warn">Truncated, because it exceeds the maximum size.</p>`;

function Reports({ call }) {
  return html`${
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

function LogLine({ line }) {
  const { at, level, event, ...rest } = line;
  const more = Object.entries(rest).map(
    ([name, value]) => `${name}=${typeof value === "object" ? JSON.stringify(value) : value}`,
  );
  return html`<span class="quiet">${moment(at)}</span> <${Badge} state=${level} /> ${event} <span class="quiet">
    ${more.join(" ")}</span>`;
}
