"""Checks references to primitives: links to resources, and aliases."""

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gateway.catalog.primitives import Primitive
from gateway.config.diagnostics.problems import Problems
from gateway.config.models.content import Block
from gateway.config.models.document import Document
from gateway.language.uris.overlap import TemplateIndex, overlap

_LAST: Final = "\U0010ffff"
"""Sorts after every character of a URI."""


def warn_of_dangling_references(document: Document, *, served: Sequence[str], problems: Problems) -> None:
    """Warn about references to resources that match none of the URIs and templates in `served`."""
    answers = _Answers(served)
    for uri, place in _references(document, problems):
        # A template that starts with a variable can expand to any URI.
        if uri.partition("{")[0] and not answers.may_hold(uri):
            place.warning("no resource here has this URI")


def check_aliases(primitives: Mapping[str, Primitive], *, taken: Container[str], problems: Problems) -> None:
    """Report aliases that are in `taken` or belong to another primitive."""
    aliases: dict[str, str] = {}
    for key, primitive in primitives.items():
        for index, alias in enumerate(primitive.aliases):
            place = problems.at(primitive.name, "aliases", index)
            if alias in taken:
                place.error(f"`{alias}` is already a name, so it cannot be an alias")
            elif (first := aliases.setdefault(alias, key)) != key:
                place.error(f"`{alias}` is already an alias of `{first}`")


class _Answers:
    """The served URIs, sorted, because there can be thousands of references and files."""

    def __init__(self, served: Sequence[str]) -> None:
        self._uris = sorted(uri for uri in served if "{" not in uri)
        self._templates = TemplateIndex()
        for template in served:
            if "{" in template:
                self._templates.add(template)
        self._known: dict[str, bool] = {}

    def may_hold(self, uri: str) -> bool:
        """Whether a served resource can have this URI, which can have variables."""
        if uri not in self._known:
            is_template = self._templates.first(uri) is not None or self._templates.is_exhausted
            self._known[uri] = is_template or any(overlap(uri, each) for each in self._beginning_like(uri))
        return self._known[uri]

    def _beginning_like(self, uri: str) -> Sequence[str]:
        """Return the exact URIs that start with the text before the first variable, or the URI itself."""
        written, brace, _ = uri.partition("{")
        start = bisect_left(self._uris, written)
        end = bisect_left(self._uris, written + _LAST) if brace else start + 1
        return self._uris[start:end]


def _references(document: Document, problems: Problems) -> Iterator[tuple[str, Problems]]:
    for name, tool in document.tools.items():
        yield from _in_blocks(tool.content or [], problems.at("tools", name, "content"))
    for name, prompt in document.prompts.items():
        for index, message in enumerate(prompt.messages or []):
            yield from _in_blocks(message.blocks, problems.at("prompts", name, "messages", index, message.role))


def _in_blocks(blocks: Iterable[Block], problems: Problems) -> Iterator[tuple[str, Problems]]:
    for index, block in enumerate(blocks):
        if block.resource is not None and block.resource.is_reference:
            yield block.resource.uri, problems.at(index, "resource", "uri")
