"""The code uses the terms of `docs/glossary.md`, and docstrings start with their subject."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


def excluded_terms() -> tuple[re.Pattern[str], frozenset[str]]:
    """Return a pattern of the words and the set of the names that the last column of the glossary excludes."""
    rows = [line.split("|") for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    found = {each for row in rows for each in re.findall(r"`(\w+)`", row[3])}
    words = {each for each in found if each.islower()}
    return re.compile(rf"\b(?:{'|'.join(sorted(words))})\b"), frozenset(found - words)


WORDS, NAMES = excluded_terms()


def spaced(text: str) -> str:
    """Return the words of a text in lower case. Identifiers are split: `KeptStreams` becomes `kept streams`."""
    return " ".join(_WORD.findall(text)).lower()


def is_excluded(text: str) -> bool:
    return WORDS.search(spaced(text)) is not None or not NAMES.isdisjoint(re.findall(r"\w+", text))


def tokens(path: Path) -> Iterator[tokenize.TokenInfo]:
    """Yield identifiers, comments and docstrings, but not other strings."""
    source = path.read_text()
    docstrings = {
        node.value.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if is_docstring or token.type in {tokenize.NAME, tokenize.COMMENT}:
            yield token


def test_glossary_excludes_words_and_names() -> None:
    assert WORDS.search(spaced("connection_ration"))
    assert {"KeptStreams", "FrontDoor", "NOBODY"} <= NAMES


FILES: Final = sorted((ROOT / "gateway").rglob("*.py"))

_NOT_SUBJECTS: Final = frozenset(
    {"As", "By", "How", "Of", "That", "Those", "What", "When", "Where", "Which", "Who", "Whose"}
)


def test_each_file_uses_the_words_of_the_glossary() -> None:
    assert [path for path in FILES if WORDS.search(spaced(str(path.relative_to(ROOT))))] == []
    # Checking the whole text first takes a tenth of the time.
    suspects = [path for path in FILES if is_excluded(path.read_text())]
    problems = [
        f"{path}:{token.start[0]}: {token.string}"
        for path in suspects
        for token in tokens(path)
        if token.string in NAMES or WORDS.search(spaced(token.string))
    ]
    assert not problems, "\n".join(problems)


def test_each_docstring_starts_with_its_subject() -> None:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    quoted = re.compile(rf"""["'](?:\s|\\\s)*(?:{"|".join(_NOT_SUBJECTS)})\b""")
    problems = [
        f"{path}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for path in FILES
        if quoted.search(source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, kinds) and (text := ast.get_docstring(node))
        if re.split(r"\W", text, maxsplit=1)[0] in _NOT_SUBJECTS
    ]
    assert not problems, "\n".join(problems)
