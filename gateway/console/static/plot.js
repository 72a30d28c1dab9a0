/** SVG plots of time series, with axes. */
import { html, useState } from "./components.js";
import { timeTicks, valueTicks } from "./axis.js";
import { clockTime } from "./format.js";

const WIDTH = 360;
const HEIGHT = 80;

/** Return the path of a series. Null values are gaps. */
function pathOf(values, top) {
  let path = "";
  let drawing = false;
  values.forEach((value, at) => {
    if (value === null) {
      drawing = false;
      return;
    }
    const point = `${((at / (values.length - 1)) * WIDTH).toFixed(1)} ${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`;
    // A line of no length shows a value between two gaps as a dot.
    path += drawing ? `L${point}` : `M${point}h0`;
    drawing = true;
  });
  return path;
}

/** Plots series `{name, tone, values}` that end at `end`, with one value every `seconds`. `format` formats a value. */
export function Plot({ title, series, seconds, end, format }) {
  const [at, setAt] = useState(null);
  const length = series[0].values.length;
  const highest = Math.max(0, ...series.flatMap((each) => each.values.filter((value) => value !== null)));
  const ticks = valueTicks(highest);
  const top = ticks.at(-1);
  const last = new Date(end).getTime() - seconds * 1000;
  const first = last - (length - 1) * seconds * 1000;
  const move = (to) => setAt(Math.max(0, Math.min(length - 1, Math.round(to))));
  const hover = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    move(((event.clientX - box.left) / box.width) * (length - 1));
  };
  const keys = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    move((at ?? length - 1) + step);
  };
  const share = (time) => ((time - first) / (last - first)) * 100;
  const shown = at ?? length - 1;
  return html`<figure class="plot">
    <figcaption><span class="plot-title">${title}</span>
      ${series.map(
        (each) => html`<span key=${each.name} class=${`legend ${each.tone}`}>${each.name} <b>${format(each.values[shown])}</b></span>`,
      )}
      <time class="quiet plot-time">${at === null ? "now" : clockTime(first + at * seconds * 1000)}</time></figcaption>
    <div class="plot-area">
      <div class="plot-values" aria-hidden="true">
        ${ticks.map((tick) => html`<span key=${tick} style=${{ bottom: `${(tick / top) * 100}%` }}>${format(tick)}</span>`)}</div>
      <svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" tabindex="0" aria-label=${`${title}, peak ${format(highest)}`}
        onPointerMove=${hover} onPointerLeave=${() => setAt(null)} onKeyDown=${keys} onBlur=${() => setAt(null)}>
        ${ticks.map((tick) => html`<line key=${tick} class="axis" x1="0" x2=${WIDTH} y1=${HEIGHT - (tick / top) * HEIGHT} y2=${HEIGHT - (tick / top) * HEIGHT} />`)}
        ${series.filter((each, nth) => nth === 0 || each.values.some(Boolean)).map((each) => html`<path key=${each.name} class=${`line ${each.tone}`} d=${pathOf(each.values, top)} />`)}
        ${at !== null && html`<line class="cursor" x1=${(at / (length - 1)) * WIDTH} x2=${(at / (length - 1)) * WIDTH} y1="0" y2=${HEIGHT} />`}
      </svg>
      <div class="plot-times" aria-hidden="true">
        ${timeTicks(first, last).map((time) => html`<span key=${time} style=${{ left: `${share(time)}%` }}>${clockTime(time, time % 60_000 > 0)}</span>`)}</div>
    </div>
  </figure>`;
}
