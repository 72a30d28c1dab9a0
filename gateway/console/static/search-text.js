/** Search rows by words. The text of each row is built once. */

/** Return a search over the strings of `parts(row)`. For a query, it returns a predicate that requires all words. */
export function searchOf(parts) {
  // Weak, so that the texts of replaced rows are released.
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
