/** The Limits page: callers near a limit, and rejected requests. */
import { Empty, Meter, Moment, PageHead, Waiting, html } from "../components.js";
import { useDocument } from "../data.js";
import { bytes, count } from "../format.js";
import { link } from "../router.js";
import { Table } from "../table.js";

const amount = (value, unit) => (unit === "bytes" ? bytes(value) : count(value));
const meter = (row, label) => html`<${Meter} used=${row.used} limit=${row.limit} label=${label} />`;
const usedOf = (row) =>
  `${amount(row.used, row.unit)}${row.limit === null ? "" : ` of ${amount(row.limit, row.unit)}`}`;
const withKeys = (rows) => rows.map((row, at) => ({ ...row, key: at }));
const keyOf = (row) => row.key;

/** A caller, or the address whose connections a limit counts. */
function whose({ caller, name, limit }) {
  if (!caller) return "All callers";
  if (String(name ?? limit).startsWith("limits.connections")) return `Address ${caller}`;
  const [, address] = /^anonymous@(.*)/.exec(caller) ?? [];
  return html`<a href=${link("traffic", { q: address ?? caller })}>${address ? `${address} (anonymous)` : caller}</a>`;
}

/** Narrower tables, in pixels, have two lines per row. */
const NARROW = 640;

const CALLERS = [
  { key: "caller", label: "Who", width: "minmax(8rem, 1.4fr)", cell: whose },
  { key: "limit", label: "Limit", width: "minmax(7rem, 1.4fr)", from: NARROW, cell: (row) => row.name },
  {
    key: "used",
    label: "Used",
    width: "minmax(6rem, 1fr)",
    cell: (row) => `${usedOf(row)}${row.per ? ` per ${row.per}` : ""}`,
  },
  {
    key: "meter",
    label: "Level",
    width: "minmax(5rem, 1fr)",
    from: NARROW,
    cell: (row) => meter(row, `${row.name} of ${row.caller ?? "all callers"}`),
  },
  { key: "more", label: "Limit", below: NARROW, cell: (row) => html`<span class="quiet">${row.name}</span>` },
];
const REFUSALS = [
  { key: "at", label: "Time", width: "5.2rem", cell: (row) => html`<${Moment} at=${row.at} />` },
  { key: "caller", label: "Who", width: "minmax(7rem, 1fr)", cell: (row) => (row.caller ? whose(row) : "–") },
  { key: "what", label: "Refused", width: "minmax(8rem, 1.6fr)", from: NARROW, cell: (row) => row.what },
  { key: "limit", label: "Limit", width: "minmax(6rem, 1.4fr)", from: NARROW, cell: (row) => row.limit ?? "" },
  {
    key: "more",
    label: "Refused",
    below: NARROW,
    cell: (row) => html`<span class="quiet">${row.what}, by ${row.limit}</span>`,
  },
];

export default function Limits() {
  const document = useDocument("limits", { on: ["reload"], everyMs: 5000 });
  const { data } = document;
  const refused = Object.entries(data?.refused ?? {}).filter(([, size]) => size);
  return html`<${PageHead} title="Limits" summary=${data && (refused.length ? `Refused: ${refused.map(([name, size]) => `${count(size)} by ${name}`).join(", ")}` : "No refusals")} />
    <${Waiting} document=${document} />
    ${
      data &&
      html`
      <section class="card"><h2>The gateway</h2><ul class="quotas">${data.quotas.map(
        (quota) => html`<li key=${quota.name}>
        <code>${quota.name}</code> <span>${usedOf(quota)}</span> ${meter(quota, quota.name)}</li>`,
      )}</ul></section>
      <h2>Callers and addresses closest to a limit</h2>
      <${Table} label="Callers" columns=${CALLERS} rows=${withKeys(data.callers)} keyOf=${keyOf}
        empty=${html`<${Empty} title="No limit is in use">
          <p>Keys such as <code>rate_limit</code> and <code>concurrency</code> in the file limit callers.</p><//>`} />
      <h2>Last refusals</h2>
      <${Table} label="Refusals" columns=${REFUSALS} rows=${withKeys([...data.refusals].reverse())} keyOf=${keyOf}
        empty=${html`<${Empty} title="No refusals"><p>No limit has rejected a request since the start.</p><//>`} />`
    }`;
}
