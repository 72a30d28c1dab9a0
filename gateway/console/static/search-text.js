/** Searching rows by words: each row's text is put together once. */

/** The words of a search, in lower case. */
export const terms = (text) => (text ?? "").toLowerCase().split(/\s+/).filter(Boolean);

/** A function of a row to its searched text, remembered as long as the row is. */
export function textOf(parts) {
  const texts = new WeakMap();
  return (row) => {
    let text = texts.get(row);
    if (text === undefined) {
      text = parts(row).filter(Boolean).join("\n").toLowerCase();
      texts.set(row, text);
    }
    return text;
  };
}
