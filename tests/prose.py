"""Counts phrases that are unusual in technical English: `python -m tests.prose [--list N] PATH...`.

A match is a place to review, not necessarily an error. `tests/docs/test_prose.py` limits the number per 1,000 words.
"""

import argparse
import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]

PATTERNS: Final = {
    name: re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    for name, pattern in {
        "nobody, whoever": r"\b(nobody|somebody|no one's|who(m)?ever)\b",
        "is none, is no X": r"\b(is|are|was|were|be) (none|no) ?\b(?! (longer|more|less|matter|different))",
        "alone (only)": r"\b\w+ alone\b",
        "'what …' as a noun": r"(?:^|[.:;,(]\s+)what (is|was|has|they|it|a|an|the|its|must|may|stands?|comes?|goes|lies"
        r"|callers?|operators?|clients?)\b",
        "those that, that which": r"\b(those (that|who|which|whose)|that which|such as are)\b",
        "stands, lies (is)": r"\b(stands?|stood|lies?) (in|at|for|on|beside|below|above|there|here|behind)\b",
        "a thing says, tells, asks": r"\b(say|said|says|tell|tells|told|knows?|ask(s|ed)?) "
        r"(what|why|which|how|so|of|whether|where|that|it|nothing|in)\b",
        "of its own": r"\b(of (its|their|our|his) own|its own)\b",
        "as it is, as far as": r"\b(as (it|they) (is|are|was|were|came|stands?)|as far as|as soon as it)\b",
        "archaic words": r"\b(mend(s|ed|ing)?|heed(s|ed)?|in vain|amid|beforehand|thereby|therein|whereof|hither"
        r"|meanwhile|all the same|not yet any)\b",
        "two relative clauses": r"[^.]*\b(which|whose|whom)\b[^.]*\b(which|whose|whom)\b[^.]*\.",
        "inverted sentence": r"(?:^|[.]\s+)(Of|By|To|With|For|From|In) (what|those|whom|which|all that|its|a)\b",
        "may (can)": r"\bmay (not )?(be|have|stand|call|go|come|say|write|read|send|hold|cost|take|use|give|make|do"
        r"|run)\b",
    }.items()
}
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'’-]+")
_SUFFIXES: Final = {".md", ".py", ".js", ".css", ".yaml", ".yml", ".toml"}
_SKIPPED: Final = {"vendor", "node_modules", ".git", ".venv", "testdata"}


class Kind(StrEnum):
    STRING = "string"
    DOCSTRING = "docstring or comment"
    DOCUMENT = "document"


Text = tuple[Kind, int, str]
"""The kind, the line and the text."""


def texts_of(path: Path) -> Iterator[Text]:
    content = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".md":
        yield from _markdown_texts(content)
    elif path.suffix == ".py":
        yield from _python_texts(content)
    else:
        for number, line in enumerate(content.splitlines(), 1):
            if comment := re.search(r"(?://|#|/\*|\*)\s+(.*)", line):
                yield Kind.DOCSTRING, number, comment[1]


def _markdown_texts(content: str) -> Iterator[Text]:
    is_code = False
    for number, line in enumerate(content.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield Kind.DOCUMENT, number, line


def _python_texts(content: str) -> Iterator[Text]:
    tree = ast.parse(content)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(_WORD.findall(node.value)) > 3:
            yield Kind.DOCSTRING if id(node) in docstrings else Kind.STRING, node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:", "#!")):
            yield Kind.DOCSTRING, token.start[0], token.string


def files_in(paths: Iterable[Path]) -> list[Path]:
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    return [file for file in files if file.suffix in _SUFFIXES and file.is_file() and not _SKIPPED & set(file.parts)]


class Count:
    """The number of words and the places of odd phrases in some files."""

    def __init__(self, paths: Iterable[Path], kinds: Iterable[Kind] = Kind) -> None:
        self.words = 0
        self.places: dict[str, list[str]] = {name: [] for name in PATTERNS}
        kinds = set(kinds)
        for path in files_in(paths):
            for kind, line, text in texts_of(path):
                if kind in kinds:
                    self._add(path, line, text)

    def _add(self, path: Path, line: int, text: str) -> None:
        self.words += len(_WORD.findall(text))
        for name, pattern in PATTERNS.items():
            for found in pattern.finditer(text):
                excerpt = text[max(0, found.start() - 30) : found.end() + 50].replace("\n", " ")
                self.places[name].append(f"{path}:{line}: …{excerpt}…")

    @property
    def per_thousand(self) -> float:
        """Odd phrases per 1,000 words."""
        return 1000 * sum(map(len, self.places.values())) / max(self.words, 1)

    def report(self, examples: int) -> str:
        rows = [
            row
            for name, places in self.places.items()
            for row in (f"{len(places):6}  {name}", *(f"          {place}" for place in places[:examples]))
        ]
        return "\n".join((*rows, f"{self.per_thousand:.2f} odd phrases per 1,000 of {self.words:,} words"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=int, default=0, help="places shown per pattern")
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    print(Count(arguments.paths).report(arguments.list))  # noqa: T201
