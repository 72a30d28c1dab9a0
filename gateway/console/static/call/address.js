/** Checks the address that a call asks to open. Pure. */

/** Return the `URL` of a web page in ASCII, which shows look-alike and invisible characters; null for other addresses. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:"].includes(url.protocol) ? url : null;
  } catch {
    return null;
  }
}
