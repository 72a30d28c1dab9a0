/** The Catalog page: all definitions of the file and the upstreams, available or not, and their form in each revision. */
import {
  Badge,
  CopyButton,
  Code,
  Empty,
  Facts,
  Filters,
  PageHead,
  Panel,
  Tabs,
  Tags,
  Waiting,
  html,
  useMemo,
  useState,
} from "../components.js";
import { useDocument } from "../data.js";
import { count, counted, duration } from "../format.js";
import { JsonTree } from "../json-tree.js";
import { link, setQuery } from "../router.js";
import { Table } from "../table.js";
import { searchOf } from "../search-text.js";

const KINDS = [
  ["tool", "Tools"],
  ["resource", "Resources"],
  ["template", "Resource templates"],
  ["prompt", "Prompts"],
  ["skill", "Skills"],
];
/** Narrower tables, in pixels, have two lines per row. */
const NARROW = 620;
const keyOf = (entry) => `${entry.kind}:${entry.name}`;
const open = (entry) => setQuery({ open: keyOf(entry) });

/** The description, or why the definition is not available. */
const about = (entry) =>
  entry.offered
    ? (entry.description ?? entry.title ?? "")
    : html`<${Badge} tone="warn">not available<//> ${entry.reason ?? entry.description}`;

const COLUMNS = [
  {
    key: "name",
    label: "Name",
    width: "minmax(9rem, 1.4fr)",
    cell: (entry) => html`<span class="mono">${entry.name}</span>`,
  },
  { key: "kind", label: "Kind", width: "5.5rem", cell: (entry) => entry.kind },
  { key: "description", label: "Description", width: "minmax(8rem, 2.6fr)", from: NARROW, cell: about },
  {
    key: "tags",
    label: "Tags",
    width: "minmax(5rem, .8fr)",
    from: 900,
    cell: (entry) => html`<${Tags} names=${entry.tags} />`,
  },
  { key: "backend", label: "Backend", width: "6rem", from: 760, cell: (entry) => entry.backend ?? "" },
  {
    key: "source",
    label: "Source",
    width: "minmax(7rem, 1fr)",
    from: 1000,
    cell: (entry) => entry.upstream ?? entry.source?.split("/").at(-1) ?? "",
  },
  { key: "more", label: "Description", below: NARROW, cell: (entry) => html`<span class="quiet">${about(entry)}</span>` },
];

/** The text that is searched. */
const search = searchOf((entry) => [
  entry.name,
  entry.title,
  entry.description,
  entry.uri,
  entry.tags?.join(" "),
  entry.upstream,
  entry.source,
]);

function matching(entries, query) {
  const hasWords = search(query.get("q"));
  const [kind, tag, view, offered, backend] = ["kind", "tag", "view", "offered", "backend"].map((name) =>
    query.get(name),
  );
  return entries.filter(
    (entry) =>
      (!kind || entry.kind === kind) &&
      (!tag || entry.tags?.includes(tag)) &&
      (!view || entry.views?.includes(view)) &&
      (!offered || entry.offered === (offered === "yes")) &&
      (!backend || entry.backend === backend) &&
      hasWords(entry),
  );
}

export default function CatalogPage({ query }) {
  const document = useDocument("catalog", { on: ["reload", "upstream"] });
  const entries = document.data?.entries;
  const filters = ["q", "kind", "tag", "view", "offered", "backend"].map((name) => query.get(name) ?? "").join("\n");
  const rows = useMemo(() => matching(entries ?? [], query), [entries, filters]);
  const backends = useMemo(
    () => [...new Set((entries ?? []).map((entry) => entry.backend).filter(Boolean))].sort(),
    [entries],
  );
  const [tags, views] = [document.data?.tags ?? [], document.data?.views ?? []];
  const choices = [
    { name: "kind", label: "Kind", options: KINDS },
    { name: "tag", label: "Tag", options: tags },
    { name: "view", label: "View", options: views },
    { name: "backend", label: "Backend", options: backends },
    {
      name: "offered",
      label: "Available",
      options: [
        ["yes", "Yes"],
        ["no", "No"],
      ],
    },
  ].filter(({ name, options }) => options.length || query.get(name));
  const openKey = query.get("open");
  const summary =
    entries &&
    (rows.length === entries.length
      ? counted(entries.length, "entry", "entries")
      : `${count(rows.length)} of ${counted(entries.length, "entry", "entries")}`);
  return html`<${PageHead} title="Catalog" summary=${
    summary &&
    html`<span role="status" data-count=${rows.length}>
    ${summary}</span>`
  } />
    <${Filters} query=${query} label="Search the catalog" choices=${choices} />
    <${Waiting} document=${document} />
    ${
      entries &&
      html`<div class="split">
      <${Table} label="Catalog" columns=${COLUMNS} rows=${rows} keyOf=${keyOf} onOpen=${open} openKey=${openKey}
        rowClass=${(entry) => (entry.offered ? "" : "off")} empty=${html`<${Nothing} any=${entries.length > 0} />`} />
      ${openKey && html`<${Details} key=${openKey} open=${openKey} listed=${entries.find((entry) => keyOf(entry) === openKey)} />`}
    </div>`
    }`;
}

const Nothing = ({ any }) =>
  any
    ? html`<${Empty} title="Nothing matches"><a href=${link("catalog")}>Remove all filters</a><//>`
    : html`<${Empty} title="No definitions"><p>Add a tool to the file, and save the file.</p>
      <a href=${link("config")}>Show the file</a><//>`;

const CALLS = {
  tool: ["tool", "Call"],
  resource: ["resource", "Read"],
  template: ["template", "Read"],
  prompt: ["prompt", "Get"],
};

function Details({ open: key, listed }) {
  const kind = key.slice(0, key.indexOf(":"));
  const name = key.slice(kind.length + 1);
  const document = useDocument(`catalog/${encodeURIComponent(kind)}?name=${encodeURIComponent(name)}`, {
    on: ["reload", "upstream"],
  });
  // Show the entry of the list until the definition arrives.
  const shown = document.data ?? (listed && !document.error ? { entry: listed } : null);
  const entry = shown?.entry;
  const [parameter, verb] = CALLS[kind] ?? [];
  const target = kind === "resource" ? (entry?.uri ?? name) : name;
  const actions =
    entry?.offered && verb && html`<a class="button primary" href=${link("call", { [parameter]: target })}>${verb}</a>`;
  return html`<${Panel} title=${name} actions=${actions} onClose=${() => setQuery({ open: null })}>
    <${Waiting} document=${document} />
    ${entry && html`<${Definition} document=${shown} />`}
  <//>`;
}

/** The limits that are set for a primitive. */
function limitsOf(limits) {
  const held = Object.entries(limits ?? {}).filter(([, value]) => value !== null && value !== false);
  return held.map(([name, value]) => {
    if (name.endsWith("Ms")) return [`Limit: ${name.slice(0, -2)}`, duration(value)];
    return [
      `Limit: ${name}`,
      value === true ? "yes" : typeof value === "object" ? JSON.stringify(value) : String(value),
    ];
  });
}

function Definition({ document }) {
  const { entry, definitions, yaml, limits, examples } = document;
  const revisions = Object.keys(definitions ?? {})
    .sort()
    .reverse();
  const [revision, setRevision] = useState(revisions[0]);
  const shown = revisions.includes(revision) ? revision : revisions[0];
  const [file, line] = /^(.*):(\d+)$/.exec(entry.source ?? "")?.slice(1) ?? [];
  const hints = Object.entries(entry.annotations ?? {}).map(([hint, value]) => `${hint}: ${value}`);
  return html`
    ${!entry.offered && html`<p class="note warn">Not available: ${entry.reason ?? "unknown reason"}</p>`}
    ${entry.description && html`<p class="text">${entry.description}</p>`}
    <${Facts} pairs=${[
      ["Kind", entry.kind],
      ["Title", entry.title],
      ["URI", entry.uri && html`<code>${entry.uri}</code>`],
      ["Backend", entry.backend],
      ["Source", file ? html`<a href=${link("config", { file, line })}>${entry.source}</a>` : entry.source],
      [
        "Upstream",
        entry.upstream && html`<a href=${link("upstreams", { open: entry.upstream })}>${entry.upstream}</a>`,
      ],
      ["Tags", entry.tags?.length ? html`<${Tags} names=${entry.tags} />` : null],
      ["Scopes", entry.scopes?.join(", ")],
      ["Views", entry.views?.join(", ")],
      ["Annotations", hints.join(", ")],
      ...limitsOf(limits),
      ["Traffic", html`<a href=${link("traffic", { name: entry.name })}>Calls of this ${entry.kind}</a>`],
    ]} />
    ${yaml && html`<h3>In the file</h3><${Code} text=${yaml} label="Definition in the file" isYaml />`}
    ${
      revisions.length > 0 &&
      html`<h3>As clients see it</h3>
      <${Tabs} label="Protocol revision" tabs=${revisions.map((each) => [each, each])} value=${shown} onChange=${setRevision} />
      <${JsonTree} key=${shown} value=${definitions[shown]} open=${4} label=${`Definition in revision ${shown}`} />`
    }
    ${
      examples?.length > 0 &&
      html`<h3>Examples</h3>
      ${examples.map((example, at) => html`<${JsonTree} key=${at} value=${example} label=${`Example ${at + 1}`} />`)}`
    }
    <p><${CopyButton} text=${entry.name} label="Copy name" /></p>`;
}
