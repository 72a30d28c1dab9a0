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
  return html`<${PageHead} title="Overview" summary=${data && summary(data.status)}>
    <${ReloadButton} onDone=${document.refresh} /><//>
    <${Waiting} document=${document} />
    ${
      data &&
      html`
      <${Unreachable} upstreams=${data.status.upstreams} />
      <${Problems} problems=${data.problems} counts=${data.problemCounts} status=${data.status} />
      <div class="cards">
        <${Now} status=${data.status} />
        <${Rates} rates=${data.rates} />
      </div>
      <div class="cards">
        <${OnOffer} status=${data.status} />
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
          html`<li key=${name}><a href=${link("upstreams", { open: name })}>${name}</a>: ${each.reason}</li>`,
      )}</ul>
  </section>`;
}

function Problems({ problems, counts, status }) {
  if (!problems.length) return null;
  const { error: errors = 0, warning: warnings = 0 } = counts ?? {};
  const more = errors + warnings - problems.reduce((sum, problem) => sum + 1 + problem.alikeCount, 0);
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
  const isUnreachable = unreachable(status.upstreams).length > 0;
  const state = live?.state ?? status.state;
  const badge =
    isUnreachable && state === "ready" ? html`<${Badge} tone="bad">upstream down<//>` : html`<${Badge} state=${state} />`;
  return html`<section class="card wide"><h2>Now ${badge}</h2>
    <div class="figures">${figures.map(([name, value]) => html`<div key=${name}><b>${value}</b>${name}</div>`)}</div>
  </section>`;
}

function Rates({ rates }) {
  const shared = { seconds: rates.seconds, end: rates.end };
  const perSecond = (values) => values.map((value) => value / rates.seconds);
  const rate = (value) => (value === null ? "–" : `${Number(value.toFixed(1))}/s`);
  const series = [
    { name: "Calls", tone: "", values: perSecond(rates.calls) },
    { name: "Errors", tone: "bad", values: perSecond(rates.errors) },
  ];
  const times = [
    { name: "Median", tone: "", values: rates.p50Ms },
    { name: "95th percentile", tone: "warn", values: rates.p95Ms },
  ];
  return html`<section class="card wide"><h2>Last hour</h2><div class="plots">
    <${Plot} title="Calls" series=${series} format=${rate} ...${shared} />
    <${Plot} title="Duration" series=${times} format=${duration} ...${shared} /></div>
  </section>`;
}

function OnOffer({ status }) {
  const kinds = [
    ["tool", "Tools"],
    ["resource", "Resource definitions"],
    ["prompt", "Prompts"],
    ["skill", "Skills"],
  ];
  const absent = status.left_out + status.disabled;
  return html`<section class="card"><h2>On offer</h2>
    <div class="figures">${kinds.map(
      ([kind, text]) => html`<div key=${kind}><b>${count(status[`${kind}s`])}</b>
      <a href=${link("catalog", { kind })}>${text}</a></div>`,
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
        ${counted(view.tools, "tool")}, ${counted(view.resources, "resource")}, ${counted(view.prompts, "prompt")}</span>
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
      [status.problems?.length ? "Last reload (failed)" : "Last reload", html`<${Moment} at=${status.last_reload} />`],
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
