/** The Overview page: health, rates of the last hour, components, and client configurations. */
import { post } from "../api.js";
import {
  Badge,
  Button,
  Choice,
  Code,
  CopyButton,
  Empty,
  Facts,
  Moment,
  PageHead,
  Problem,
  Waiting,
  html,
  useState,
} from "../components.js";
import { useDocument } from "../data.js";
import { useLive } from "../events.js";
import { bytes, count, counted, duration, long } from "../format.js";
import { intervalsSince } from "../axis.js";
import { Plot } from "../plot.js";
import { link } from "../router.js";

const REFRESH_MS = 10_000;
const SHOWN_PROBLEMS = 5;

export default function Overview({ query, facts }) {
  // Without names, because ten thousand tools would be fetched every ten seconds.
  const document = useDocument(`overview?names=0&problems=${SHOWN_PROBLEMS}`, {
    on: ["reload", "upstream"],
    everyMs: REFRESH_MS,
  });
  const { data } = document;
  const hasErrors = data?.problemCounts.error > 0;
  const problems = data && html`<${Problems} problems=${data.problems} counts=${data.problemCounts} status=${data.status} />`;
  return html`<${PageHead} title="Overview" summary=${data && summary(data.status)}>
    <${ReloadButton} onDone=${document.refresh} /><//>
    <${Waiting} document=${document} />
    ${
      data &&
      html`
      <${Unreachable} upstreams=${data.status.upstreams} />
      ${hasErrors && problems}
      <div class="cards">
        <${Now} status=${data.status} />
        <${Rates} rates=${data.rates} status=${data.status} />
      </div>
      ${!hasErrors && problems}
      <div class="cards">
        <${OnOffer} status=${data.status} counts=${data.counts} />
        <${Parts} status=${data.status} facts=${facts} />
        <${Upstreams} upstreams=${data.status.upstreams} />
      </div>
      <div class="cards">
        <${Connect} clients=${data.clients} endpoint=${facts.endpoint} query=${query} />
      </div>`
    }`;
}

const summary = (status) =>
  `mcp-gateway ${status.version}, up for ${long(status.uptime_seconds)}, generation ${status.generation}`;

function ReloadButton({ onDone }) {
  const [answer, setAnswer] = useState(null);
  const [busy, setBusy] = useState(false);
  const reload = async () => {
    setBusy(true);
    try {
      await post("reload");
      setAnswer(null);
    } catch (error) {
      setAnswer(error.message);
    }
    setBusy(false);
    onDone();
  };
  return html`${answer && html`<span class="note bad" role="alert">${answer}</span>`}
    <${Button} disabled=${busy} onClick=${reload}>Reload the file<//>`;
}

/** Return the unreachable upstreams. */
const unreachable = (upstreams) => Object.entries(upstreams ?? {}).filter(([, each]) => each.reason);

function Unreachable({ upstreams }) {
  const found = unreachable(upstreams);
  if (!found.length) return null;
  return html`<section class="note bad" aria-label="Upstreams that cannot be reached">
    <h2>${counted(found.length, "upstream")} cannot be reached</h2>
    <ul class="list">${found
      .slice(0, SHOWN_PROBLEMS)
      .map(
        ([name, each]) =>
          html`<li key=${name}><a href=${link("upstreams", { open: name })}>${name}</a> <span>${each.reason}</span></li>`,
      )}</ul>
  </section>`;
}

function Problems({ problems, counts, status }) {
  if (!problems.length) return null;
  const { error: errors = 0, warning: warnings = 0 } = counts ?? {};
  const more = errors + warnings - problems.length;
  return html`<section class=${`note ${errors ? "bad" : "warn"}`} aria-label="Problems">
    <h2>${errors ? `The file was not loaded: ${counted(errors, "error")}` : counted(warnings, "warning")}</h2>
    ${errors > 0 && html`<p>Generation ${status.generation} is still served.</p>`}
    ${problems.map(
      (problem, at) =>
        html`<${Problem} key=${at} problem=${problem} href=${link("config", { file: problem.file, line: problem.line })} />`,
    )}
    ${more > 0 && html`<a href=${link("config", { tab: "problems" })}>Show ${count(more)} more</a>`}
  </section>`;
}

function Now({ status }) {
  const live = useLive((store) => store.status);
  const rate = live?.rate ?? null;
  const figures = [
    ["Calls per second", rate ? (rate.calls / 10).toFixed(1) : "–"],
    ["Errors, last 10 s", rate ? count(rate.errors) : "–"],
    ["Calls running", count(live?.callsRunning ?? status.calls_running)],
    ["Calls waiting", count(live?.callsWaiting ?? status.calls_waiting)],
    ["Sessions", count(live?.sessions ?? status.sessions)],
    ["Streams", count(live?.streams ?? status.streams)],
  ];
  return html`<section class="card wide"><h2>Now</h2>
    <div class="figures">${figures.map(([name, value]) => html`<div key=${name}><b>${value}</b>${name}</div>`)}</div>
  </section>`;
}

function Rates({ rates, status }) {
  const size = intervalsSince(status.uptime_seconds, rates.seconds, rates.calls.length);
  const recent = (values) => values.slice(-size);
  const shared = { seconds: rates.seconds, end: rates.end };
  const perSecond = (values) => recent(values).map((value) => value / rates.seconds);
  const rate = (value) => (value === null ? "–" : `${Number(value.toFixed(2))}/s`);
  const series = [
    { name: "Calls", tone: "", values: perSecond(rates.calls) },
    { name: "Errors", tone: "bad", values: perSecond(rates.errors) },
  ];
  const times = [
    { name: "Median", tone: "", values: recent(rates.p50Ms) },
    { name: "95th percentile", tone: "warn", values: recent(rates.p95Ms) },
  ];
  const title = size < rates.calls.length ? `Since the start, ${long(status.uptime_seconds)} ago` : "Last hour";
  return html`<section class="card wide"><h2>${title}</h2><div class="plots">
    <${Plot} title="Calls" series=${series} format=${rate} ...${shared} />
    <${Plot} title="Duration" series=${times} format=${duration} ...${shared} /></div>
  </section>`;
}

const KINDS = [
  ["tool", "Tools"],
  ["resource", "Resources"],
  ["template", "Resource templates"],
  ["prompt", "Prompts"],
  ["skill", "Skills"],
];

const viewText = ({ tools, resources, prompts }) =>
  [counted(tools, "tool"), prompts && counted(prompts, "prompt"), resources && "resources"].filter(Boolean).join(", ");

/** The numbers of definitions, as the Catalog page counts them. */
function OnOffer({ status, counts }) {
  const absent = counts.unavailable;
  return html`<section class="card"><h2>Catalog</h2>
    <div class="figures">${KINDS.filter(([kind]) => counts[kind] || kind === "tool").map(
      ([kind, text]) => html`<div key=${kind}><b>${count(counts[kind])}</b>
      <a href=${link("catalog", { kind, offered: "yes" })}>${text}</a></div>`,
    )}
      ${
        absent > 0 &&
        html`<div><b>${count(absent)}</b><a href=${link("catalog", { offered: "no" })}>Not available</a>
        </div>`
      }</div>
    ${
      Object.keys(status.views ?? {}).length > 0 &&
      html`<h3>Views</h3><ul class="list">${Object.entries(status.views).map(
        ([name, view]) => html`<li key=${name}>
      <a href=${link("catalog", { view: name })}>${name}</a> <span class="quiet">
        ${viewText(view)}</span>
          </li>`,
      )}</ul>`
    }
  </section>`;
}

function Parts({ status, facts }) {
  const store = status.store;
  const kept =
    store &&
    [store.durable === false ? "in memory" : (store.file ?? store.directory ?? store.url), store.problem]
      .filter(Boolean)
      .join(": ");
  const listeners = (status.listeners ?? []).map((each) =>
    typeof each === "string" ? each : (each.url ?? each.address ?? JSON.stringify(each)),
  );
  return html`<section class="card"><h2>Daemon</h2>
    <${Facts} pairs=${[
      ["Version", status.version],
      ["File", html`<a href=${link("config")}>${status.config}</a>`],
      ["Last reload", html`<${Moment} at=${status.last_reload} />`],
      [
        "Last refused",
        status.problems?.length > 0 &&
          html`<${Moment} at=${status.last_refused} /> <a href=${link("config", { tab: "problems" })}>${counted(status.problems.length, "error")}</a>`,
      ],
      ["Needs a restart", status.restart_required?.length ? status.restart_required.join(", ") : null],
      ["Watching", status.watch_error ? html`<${Badge} tone="bad">${status.watch_error}<//>` : null],
      ["Endpoint", facts.endpoint && html`<code>${facts.endpoint}</code>`],
      ["Listeners", listeners.join(", ")],
      ["Store", kept],
      [
        "Tasks",
        Object.entries(status.task_statuses ?? {})
          .map(([state, size]) => `${size} ${state.replaceAll("_", " ")}`)
          .join(", "),
      ],
      ["Child processes", status.children],
      ["Unread output", status.limits?.unread && bytes(status.limits.unread.used)],
    ]} /></section>`;
}

function Upstreams({ upstreams }) {
  const states = useLive((store) => store.status?.upstreams ?? null);
  const names = Object.keys(upstreams ?? {});
  if (!names.length) return null;
  return html`<section class="card"><h2><a href=${link("upstreams")}>Upstreams</a></h2>
    <ul class="list">${names.slice(0, 12).map(
      (name) => html`<li key=${name}>
      <a href=${link("upstreams", { open: name })}>${name}
        </a> <${Badge} state=${states?.[name] ?? upstreams[name].state ?? "unknown"} /></li>`,
    )}</ul>
    ${names.length > 12 && html`<a href=${link("upstreams")}>Show all ${names.length}</a>`}
  </section>`;
}

function Connect({ clients, endpoint, query }) {
  if (!clients?.length)
    return html`<section class="card"><h2>Connect a client</h2><${Empty} title=${endpoint ?? "No endpoint"} /></section>`;
  const client = clients.find((each) => each.name === query.get("client")) ?? clients[0];
  return html`<section class="card wide"><h2>Connect a client</h2>
    <div class="filters"><${Choice} query=${query} name="client" label="Client" all=${clients[0].title}
      options=${clients.slice(1).map((each) => [each.name, each.title])} />
      ${client.file && html`<span class="quiet">goes to <code>${client.file}</code></span>`}
      <${CopyButton} text=${client.text} />
      ${
        client.link &&
        html`<a class="button" href=${client.link} target="_blank" rel="noreferrer">Open in ${client.title}
        </a>`
      }</div>
    <${Code} text=${client.text} label=${`Configuration for ${client.title}`} />
  </section>`;
}
