/** The Config page: the file, the effective configuration, problems, reloads, and the lock. */
import {
  Badge,
  Button,
  Choice,
  Code,
  Empty,
  Moment,
  PageHead,
  Problem,
  Tabs,
  Tags,
  Waiting,
  html,
  useMemo,
  useState,
} from "../components.js";
import { useDocument } from "../data.js";
import { count, counted, duration } from "../format.js";
import { Lines } from "../lines.js";
import { link, setQuery } from "../router.js";

const SHOWN_CHANGES = 50;

/** Return the file of a location: an exact path, or one that ends with it. */
const fileOf = (files, path) =>
  files.find((file) => file.path === path) ?? files.find((file) => path && file.path.endsWith(`/${path}`)) ?? null;

export default function Config({ query }) {
  // The effective configuration is fetched by its own tab.
  const document = useDocument("config?effective=0", { on: ["reload"] });
  const { data } = document;
  const tabs = data && [
    ["files", counted(data.files.length, "file")],
    ["effective", "Effective"],
    ["problems", data.problems.length ? counted(data.problems.length, "problem") : "Problems"],
    ["reloads", "Reloads"],
    ["lock", data.lock?.differs.length ? `Lock: ${counted(data.lock.differs.length, "difference")}` : "Lock"],
  ];
  const tab = tabs?.some(([name]) => name === query.get("tab")) ? query.get("tab") : "files";
  return html`<${PageHead} title="Config" summary="Read-only. Edit the files in an editor." />
    <${Waiting} document=${document} />
    ${
      data &&
      html`
      ${data.restartRequired?.length > 0 && html`<p class="note warn">Needs a restart to take effect: ${data.restartRequired.join(", ")}</p>`}
      <${Tabs} label="Views of the file" tabs=${tabs} value=${tab} onChange=${(value) => setQuery({ tab: value === "files" ? null : value })} />
      ${tab === "files" && html`<${Files} data=${data} query=${query} />`}
      ${tab === "effective" && html`<${Effective} />`}
      ${tab === "problems" && html`<${Problems} problems=${data.problems} />`}
      ${tab === "reloads" && html`<${Reloads} reloads=${data.reloads} />`}
      ${tab === "lock" && html`<${Lock} lock=${data.lock} />`}`
    }`;
}

/** The effective configuration, which takes long for ten thousand tools. */
function Effective() {
  const document = useDocument("config", { on: ["reload"] });
  if (!document.data) return html`<${Waiting} document=${document} />`;
  return html`<${Lines} text=${document.data.effective} label="Effective file" />`;
}

function Files({ data, query }) {
  const file = fileOf(data.files, query.get("file")) ?? data.files[0];
  const problems = data.problems.filter((problem) => problem.file && fileOf([file], problem.file));
  const hasErrors = problems.some((problem) => problem.severity !== "warning");
  const marks = useMemo(
    () =>
      Object.fromEntries(problems.map((problem) => [problem.line, problem.severity === "warning" ? "warn" : "bad"])),
    [data, file],
  );
  if (!file) return html`<${Empty} title="No file is loaded" />`;
  return html`<div class="filters">
      ${data.files.length > 1 && html`<${Choice} query=${query} name="file" label="File" all=${data.files[0].path} options=${data.files.slice(1).map((each) => each.path)} />`}
      ${data.files.length === 1 && html`<code>${file.path}</code>`}
      <span class="quiet">SHA-256 <code title=${file.digest}>${file.digest?.slice(0, 12)}</code></span>
    </div>
    ${
      problems.length > 0 &&
      html`<details open=${hasErrors}><summary>${counted(problems.length, hasErrors ? "problem" : "warning")} in this file</summary>
      ${problems.slice(0, 3).map((problem, at) => html`<${Problem} key=${at} problem=${problem} href=${link("config", { file: problem.file, line: problem.line })} />`)}
      ${problems.length > 3 && html`<a href=${link("config", { tab: "problems" })}>Show all</a>`}</details>`
    }
    <${Lines} key=${file.path} text=${file.text} label=${file.path} line=${Number(query.get("line")) || problems[0]?.line} marks=${marks} />`;
}

function Problems({ problems }) {
  const [most, setMost] = useState(SHOWN_CHANGES);
  if (!problems.length)
    return html`<${Empty} title="No problems"><p>The served file has no errors or warnings.</p><//>`;
  return html`<div class="card">
    ${problems
      .slice(0, most)
      .map(
        (problem, at) =>
          html`<${Problem} key=${at} problem=${problem} href=${link("config", { file: problem.file, line: problem.line })} />`,
      )}
    ${problems.length > most && html`<${Button} onClick=${() => setMost(most + 500)}>Show more of ${count(problems.length)}<//>`}
  </div>`;
}

function Reloads({ reloads }) {
  if (!reloads.length)
    return html`<${Empty} title="No reloads yet"><p>Save the file to list its changes here.</p><//>`;
  return html`<div class="cards one">
    ${[...reloads].sort((a, b) => (a.at < b.at ? 1 : -1)).map((reload) => html`<${ReloadCard} key=${reload.at} reload=${reload} />`)}</div>`;
}

const TRIGGERS = {
  file: "a file was saved",
  signal: "a signal asked for it",
  request: "a request asked for it",
  source: "a source of definitions changed",
  start: "the daemon started",
};

const IN_CATALOG = new Set(["tool", "resource", "prompt", "skill"]);

function Change({ change }) {
  const isThere = change.change !== "removed" && IN_CATALOG.has(change.kind);
  return html`<li>
    <${Badge} state=${change.change} /> <span class="quiet">${change.kind}</span>
    ${
      isThere
        ? html`<a class="mono" href=${link("catalog", { q: change.name })}>${change.name}
      </a>`
        : html`<span class="mono">${change.name}</span>`
    }
    ${change.views?.length > 0 && html`<span class="quiet">for <${Tags} names=${change.views} /></span>`} ${change.detail}
    ${
      change.difference?.length > 0 &&
      html`<details class="full"><summary>Difference</summary>
      <${Code} text=${change.difference.join("\n")} label=${`Difference of ${change.name}`} /></details>`
    }
  </li>`;
}

/** The clients that were notified of list changes: "everyone: tools". */
function Noticed({ by }) {
  const told = Object.entries(by ?? {}).filter(([, lists]) => lists.length);
  if (!told.length) return null;
  return html`<p class="quiet">Announced to ${told.map(([audience, lists]) => `${audience} (${lists.join(", ")})`).join(", ")}</p>`;
}

function ReloadCard({ reload }) {
  const [all, setAll] = useState(false);
  const changes = reload.changes ?? [];
  const shown = all ? changes : changes.slice(0, SHOWN_CHANGES);
  return html`<section class="card"><h2><${Moment} at=${reload.at} /> <${Badge} state=${reload.outcome} /></h2>
    <p class="quiet">Generation ${reload.generation}, because ${TRIGGERS[reload.trigger] ?? reload.trigger}${reload.ms > 0 && `, in ${duration(reload.ms)}`}</p>
    <${Noticed} by=${reload.noticedBy} />
    ${reload.problems?.map((problem, at) => html`<${Problem} key=${at} problem=${problem} href=${link("config", { file: problem.file, line: problem.line })} />`)}
    ${changes.length === 0 && reload.outcome !== "refused" && reload.trigger !== "start" && html`<p>No definitions changed.</p>`}
    <ul class="list">${shown.map((change) => html`<${Change} key=${`${change.kind} ${change.name}`} change=${change} />`)}
      </ul>
    ${reload.changesOmitted > 0 && html`<p class="quiet">${counted(reload.changesOmitted, "more change")} not kept.</p>`}
    ${shown.length < changes.length && html`<button type="button" class="button" onClick=${() => setAll(true)}>Show all ${changes.length}</button>`}
  </section>`;
}

function Lock({ lock }) {
  if (!lock?.file)
    return html`<${Empty} title="No lock"><p>
      <code>mcp-gateway lock FILE</code> pins all definitions. Differences appear here.</p><//>`;
  return html`<section class="card"><h2><code>${lock.file}</code></h2>
    ${
      lock.differs.length
        ? html`<ul class="list">${lock.differs.map((each) => html`<li key=${each}>${each}</li>`)}
      </ul>`
        : html`<p>All definitions match the lock.</p>`
    }
  </section>`;
}
