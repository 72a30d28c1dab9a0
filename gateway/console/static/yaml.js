/** Splits YAML into coloured parts. Not a parser: a colour can be wrong, but the text never changes. Pure. */

/** Longer text has no colours, because splitting it would take too long. */
const LONGEST = 500_000;
const NUMBER = /^[-+]?(?:0[xo])?\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?$/;
const WORD = /^(?:true|false|null|yes|no|on|off|~)$/i;
const QUOTED = String.raw`"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'`;

/** The kind of a part, and the expression that matches it. The first match wins. */
const RULES = [
  ["", /\s+/y],
  ["comment", /#.*/y],
  ["mark", /[{}[\],]|-(?=\s|$)|---$/y],
  ["key", new RegExp(String.raw`(?:${QUOTED})(?=\s*:)|[^\s:,[\]{}#&*!|>'"%@\x60][^,[\]{}#"]*?(?=\s*:(?:\s|$))`, "y")],
  ["mark", /:/y],
  ["block", /[|>][-+\d]*(?=\s*(?:#|$))/y],
  ["tag", /[&*!][^\s,[\]{}]*/y],
  ["string", new RegExp(`${QUOTED}|["'].*`, "y")],
];
/** A plain scalar ends at a comment. In brackets, it also ends at a comma or bracket. */
const SCALAR = /(?:[^\s#]|(?<=\S)#|\s+(?![\s#]|$))+/y;
const SCALAR_IN_BRACKETS = /(?:[^\s,[\]{}#]|(?<=\S)#|\s+(?![\s#,[\]{}]|$))+/y;

const kindOf = (scalar) => (NUMBER.test(scalar) ? "number" : WORD.test(scalar) ? "word" : "");

/** Return the parts `[kind, text]` of each line. The kind is empty for plain text. */
export function colouredLines(text) {
  const lines = text.split("\n");
  if (text.length > LONGEST) return lines.map((line) => [["", line]]);
  let depth = 0;
  /** The indentation of the key or dash of an open block scalar, or -1. */
  let block = -1;
  return lines.map((line) => {
    const indent = line.search(/\S|$/);
    if (block >= 0 && (indent > block || indent === line.length)) return [["string", line]];
    block = -1;
    const parts = [];
    let [at, owner] = [0, 0];
    while (at < line.length) {
      const found = partAt(line, at, depth);
      const [kind, part] = found;
      if (kind === "key" || part === "-") owner = at;
      if (kind === "block") block = owner;
      if (kind === "mark") depth = Math.max(0, depth + ("{[".includes(part) ? 1 : "}]".includes(part) ? -1 : 0));
      parts.push(found);
      at += part.length;
    }
    return parts;
  });
}

function partAt(line, at, depth) {
  for (const [kind, rule] of RULES) {
    rule.lastIndex = at;
    const found = rule.exec(line)?.[0];
    if (found) return [kind, found];
  }
  const rule = depth ? SCALAR_IN_BRACKETS : SCALAR;
  rule.lastIndex = at;
  const scalar = rule.exec(line)?.[0] ?? line[at];
  return [kindOf(scalar), scalar];
}
