/** Ticks of the axes of a plot. Pure. */

const MINUTE = 60_000;
const TIME_STEPS = [10_000, 30_000, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE];
const MOST_TIMES = 6;
const MARGIN = 0.06;

/** Return three values from 0 to a round number that is not below `highest`. */
export function valueTicks(highest) {
  if (!(highest > 0)) return [0, 0.5, 1];
  const unit = 10 ** Math.floor(Math.log10(highest / 2));
  // The tolerance is for rounding: 0.1 * 2 * 3 is more than 0.6.
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each * 2 >= highest * (1 - 1e-9));
  return [0, step, 2 * step];
}

/** Return round times between two times in milliseconds, but not so close to the ends that their labels are cut. */
export function timeTicks(first, last) {
  const step = TIME_STEPS.find((each) => (last - first) / each <= MOST_TIMES) ?? TIME_STEPS.at(-1);
  const ticks = [];
  const margin = (last - first) * MARGIN;
  for (let at = Math.ceil((first + margin) / step) * step; at <= last - margin; at += step) ticks.push(at);
  return ticks;
}

/** Return the number of intervals since the start, at most `all`. A line needs two. */
export const intervalsSince = (uptimeSeconds, seconds, all) =>
  Math.min(all, Math.max(2, Math.ceil(uptimeSeconds / seconds) + 1));
