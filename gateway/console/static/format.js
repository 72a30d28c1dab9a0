/** Formats of numbers, times and sizes. */
const numbers = new Intl.NumberFormat("en");
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minutes = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
// The locale en-CA formats dates like ISO 8601.
const day = new Intl.DateTimeFormat("en-CA", { year: "numeric", month: "2-digit", day: "2-digit" });

export const count = (value) => (value === null || value === undefined ? "–" : numbers.format(value));

/** "1 tool", "2 tools". */
export const counted = (value, noun, plural = `${noun}s`) => `${count(value)} ${value === 1 ? noun : plural}`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let size = value;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit && size < 10 ? size.toFixed(1) : numbers.format(Math.round(size))} ${units[unit]}`;
}

/** Format milliseconds: "0.4 ms", "12 ms", "3.1 s", "4 min". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${Number(ms.toFixed(1))} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${Number((ms / 1000).toFixed(1))} s`;
  return long(ms / 1000);
}

/** Format seconds: "4 min", "3 h 20 min", "2 d 4 h". */
export function long(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Format a time of day, with the date if it is not today. */
export function moment(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return "–";
  const time = clock.format(at);
  return day.format(at) === day.format(new Date()) ? time : `${day.format(at)} ${time}`;
}

/** Format a time in milliseconds as "14:05" or "14:05:10". */
export const clockTime = (ms, hasSeconds = true) => (hasSeconds ? clock : minutes).format(ms);

/** Format the time since a moment. */
export const ago = (text) => (text ? `${long((Date.now() - new Date(text).getTime()) / 1000)} ago` : "–");
