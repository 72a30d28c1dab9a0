/** Searching rows by words: each row's text is put together once, as long as the row is there. */

/** A search over what `parts` names of a row: of a text, it makes a function that says whether a row has all words. */
export function searchOf(parts) {
  // Weak: rows that a newer document replaces take their text with them.
  const texts = new WeakMap();
  const textOf = (row) => {
    let text = texts.get(row);
    if (text === undefined) {
      text = parts(row).filter(Boolean).join("\n").toLowerCase();
      texts.set(row, text);
    }
    return text;
  };
  return (text) => {
    const words = (text ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return (row) => words.every((word) => textOf(row).includes(word));
  };
}
