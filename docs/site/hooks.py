"""MkDocs hooks: build the site from the files of the repository, so that their links work in both places.

All files that the README and `docs/` link to become pages: Markdown files unchanged, other files as code, and
directories as lists of their files.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_UNSEARCHED: Final = "---\nsearch: {exclude: true}\n---\n"


def on_files(files: Files, config: Any) -> Files:
    for path in sorted(_reachable()):
        name = _page(path)
        if name == path.relative_to(ROOT).as_posix():
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
        else:
            files.append(File.generated(config, name, content=_generated(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = ROOT / Path(page.file.src_uri).parent
    return _LINK.sub(lambda link: _rewritten(folder, link[0]), markdown)


def _reachable() -> set[Path]:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    while waiting:
        path = waiting.pop()
        if path.is_dir() and (path / "README.md").exists():
            path /= "README.md"
        if path not in seen:
            seen.add(path)
            waiting += _linked(path)
    return seen


def _linked(path: Path) -> Iterator[Path]:
    if path.is_dir() or path.suffix == ".md":
        text = _generated(path) if path.is_dir() else path.read_text(encoding="utf-8")
        targets = (
            Path(os.path.normpath(path / target if path.is_dir() else path.parent / target))
            for target in _LINK.findall(text)
        )
        yield from (target for target in targets if target.exists())


def _page(path: Path) -> str:
    """Return the name of the Markdown page or image that shows a file or directory."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"{name}/README.md"
    return f"{name}.md" if _is_code(path) else name


def _is_code(path: Path) -> bool:
    try:
        return path.suffix not in {".md", ".svg"} and bool(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return False


def _generated(path: Path) -> str:
    title = f"# `{path.relative_to(ROOT).as_posix()}`\n\n"
    if path.is_dir():
        entries = (each for each in sorted(path.iterdir()) if not each.name.startswith((".", "__")))
        return _UNSEARCHED + title + "".join(f"- [{each.name}]({each.name}){_summary(each)}\n" for each in entries)
    return f"{_UNSEARCHED}{title}````{path.suffix[1:]}\n{path.read_text(encoding='utf-8')}\n````\n"


def _summary(path: Path) -> str:
    """Return the start of the first comment or docstring of a file, as the end of a list item."""
    if not path.is_file() or not _is_code(path):
        return ""
    found = re.search(
        r'\A(?:#[^\n]*\$schema[^\n]*\n|#\n)*(?:# |""")([^"\n]+?)(?:[.:;] |\.?[\n"])', path.read_text(encoding="utf-8")
    )
    return f": {found[1]}" if found else ""


def _rewritten(folder: Path, link: str) -> str:
    target = Path(os.path.normpath(folder / link))
    return os.path.relpath(_page(target), folder.relative_to(ROOT)) if target.exists() else link
