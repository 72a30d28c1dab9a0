/** Small SVG plots of time series. */
import { html, useState } from "./components.js";

const WIDTH = 360;
const HEIGHT = 64;

/** Return the path of a series. Null values are gaps. */
function pathOf(values, top) {
  let path = "";
  let drawing = false;
  values.forEach((value, at) => {
    if (value === null) {
      drawing = false;
      return;
    }
    const x = (at / Math.max(1, values.length - 1)) * WIDTH;
    const y = HEIGHT - 1 - (value / top) * (HEIGHT - 4);
    path += `${drawing ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    drawing = true;
  });
  return path;
}

/** Plots series `{name, tone, values}` that end at `end`, with one value every `seconds`. `format` formats a value. */
export function Plot({ title, series, seconds, end, format }) {
  const [at, setAt] = useState(null);
  const length = series[0].values.length;
  // Not zero, to avoid a division by zero without calls.
  const top = Math.max(1e-9, ...series.flatMap((each) => each.values.filter((value) => value !== null)));
  const point = at ?? length - 1;
  const time = new Date(new Date(end).getTime() - (length - 1 - point) * seconds * 1000);
  const hover = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(length - 1, Math.round(((event.clientX - box.left) / box.width) * (length - 1)))));
  };
  const legend = series.map(
    (each) =>
      html`<span key=${each.name} class=${`legend ${each.tone}`}>${each.name} <b>${format(each.values[point])}</b>
        </span>`,
  );
  const peak = top > 1e-9 ? format(top) : format(0);
  return html`<figure class="plot">
    <figcaption><span class="plot-title">${title}</span> ${legend}
      <span class="quiet plot-time">${at === null ? `peak ${peak}` : time.toLocaleTimeString("en-GB")}</span></figcaption>
    <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label=${`${title}, peak ${peak}`}
      onPointerMove=${hover} onPointerLeave=${() => setAt(null)}>
      <line class="axis" x1="0" x2=${WIDTH} y1=${HEIGHT - 0.5} y2=${HEIGHT - 0.5} />
      ${series.map((each) => html`<path key=${each.name} class=${`line ${each.tone}`} d=${pathOf(each.values, top)} />`)}
      ${at !== null && html`<line class="cursor" x1=${(at / (length - 1)) * WIDTH} x2=${(at / (length - 1)) * WIDTH} y1="0" y2=${HEIGHT} />`}
    </svg>
  </figure>`;
}
