/** The address that a call asks to open, as a browser reads it. Pure. */

/** The `URL` of a web page, whose ASCII form hides neither look-alike letters nor signs that nobody sees; null of all else. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}
