/** The Tasks page: calls that continue after their request. */
import { post } from "../api.js";
import {
  Badge,
  ConfirmButton,
  Empty,
  Facts,
  Filters,
  Moment,
  PageHead,
  Panel,
  Waiting,
  html,
  useMemo,
} from "../components.js";
import { useDocument } from "../data.js";
import { ago, bytes, counted, duration } from "../format.js";
import { link, setQuery } from "../router.js";
import { searchOf } from "../search-text.js";
import { Table } from "../table.js";

const STATES = [
  ["working", "Working"],
  ["input_required", "Input required"],
  ["completed", "Completed"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
];
const ENDED = new Set(["completed", "failed", "cancelled"]);
const keyOf = (task) => task.taskId;
const search = searchOf((task) => [task.taskId, task.tool, task.principal, task.address, task.statusMessage]);

const COLUMNS = [
  {
    key: "tool",
    label: "Tool",
    width: "minmax(8rem, 1.2fr)",
    cell: (task) => html`<span class="mono">${task.tool}</span>`,
  },
  { key: "status", label: "Status", width: "8rem", cell: (task) => html`<${Badge} state=${task.status} />` },
  { key: "message", label: "Message", width: "minmax(8rem, 1.6fr)", from: 640, cell: (task) => task.statusMessage ?? "" },
  {
    key: "caller",
    label: "Caller",
    width: "minmax(6rem, 1fr)",
    from: 760,
    cell: (task) => task.principal ?? task.address ?? "",
  },
  { key: "updated", label: "Updated", width: "7rem", from: 430, cell: (task) => ago(task.lastUpdatedAt) },
  { key: "created", label: "Created", width: "7rem", from: 980, cell: (task) => ago(task.createdAt) },
];

export default function Tasks({ query }) {
  const document = useDocument("tasks", { on: ["task"], everyMs: 10_000 });
  const { data } = document;
  const [text, status] = [query.get("q") ?? "", query.get("status")];
  const rows = useMemo(
    () => (data?.tasks ?? []).filter((task) => !status || task.status === status).filter(search(text)),
    [data, text, status],
  );
  const openId = query.get("open");
  const counts = Object.entries(data?.counts ?? {})
    .map(([state, size]) => `${size} ${state.replaceAll("_", " ")}`)
    .join(", ");
  return html`<${PageHead} title="Tasks" summary=${data && (counts || "No tasks")} />
    <${Filters} query=${query} label="Search tasks" choices=${[{ name: "status", label: "Status", options: STATES }]} />
    <${Waiting} document=${document} />
    ${
      data &&
      html`<div class="split">
      <${Table} label="Tasks" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} onOpen=${(task) => setQuery({ open: task.taskId })} openKey=${openId}
        empty=${html`<${Nothing} filtered=${text || status} />`} />
      ${openId && html`<${Details} key=${openId} id=${openId} />`}
    </div>`
    }`;
}

const Nothing = ({ filtered }) =>
  filtered
    ? html`<${Empty} title="No task matches"><a href=${link("tasks")}>Remove all filters</a><//>`
    : html`<${Empty} title="No tasks">
      <p>Clients can call a tool as a task, and fetch the result later, if the file allows it:</p>
      <pre class="code">tools:\n  report:\n    task: optional   # or required</pre><p><a href=${link("catalog", { kind: "tool" })}>Show the tools</a></p><//>`;

function Details({ id }) {
  const path = `tasks/${encodeURIComponent(id)}`;
  const document = useDocument(path, { on: ["task"] });
  const task = document.data;
  const cancel = async () => {
    await post(`${path}/cancel`);
    document.refresh();
  };
  const actions =
    task &&
    !ENDED.has(task.status) &&
    html`<${ConfirmButton} title="Cancel this task?" question=${`This stops ${task.tool} and notifies its caller.`} action=${cancel}>Cancel task<//>`;
  return html`<${Panel} title=${task?.tool ?? id} actions=${actions} onClose=${() => setQuery({ open: null })}>
    <${Waiting} document=${document} />
    ${
      task &&
      html`<p><${Badge} state=${task.status} /> ${task.statusMessage}</p>
      <${Facts} pairs=${[
        ["Task", html`<code>${task.taskId}</code>`],
        ["Tool", html`<a href=${link("catalog", { open: `tool:${task.tool}` })}>${task.tool}</a>`],
        ["Caller", task.principal],
        ["Realm", task.realm],
        ["Address", task.address],
        ["Transport", task.binding],
        ["Created", html`<${Moment} at=${task.createdAt} />`],
        ["Updated", html`<${Moment} at=${task.lastUpdatedAt} />`],
        ["Expires", html`<${Moment} at=${task.expiresAt} />`],
        ["Kept for", task.ttlMs && duration(task.ttlMs)],
        ["Restarts left", task.restartsLeft],
        ["Result", task.resultBytes ? bytes(task.resultBytes) : null],
      ]} />
      <${Questions} waitsFor=${task.waitsFor} questions=${task.questions} />`
    }
  <//>`;
}

function Questions({ waitsFor, questions }) {
  const entries = Object.entries(waitsFor ?? {});
  if (!entries.length && !questions?.length) return null;
  return html`<h3>Waits for ${counted(entries.length || questions.length, "answer")}</h3>
    <ul class="list">${(questions ?? entries.map(([key, method]) => ({ key, method }))).map(
      (question) => html`<li key=${question.key}>
      <b>${question.key}</b> <span class="quiet">${question.method}</span> ${question.message ?? ""}</li>`,
    )}</ul>`;
}
