"""Whether content refers to resources that nothing here serves, as far as that can be told when the file is read."""

from collections.abc import Iterable, Iterator, Sequence

from gateway.catalog.overlap import overlap
from gateway.config.content import Block
from gateway.config.document import Document
from gateway.config.problems import Problems


def warn_of_dangling_references(document: Document, *, served: Sequence[str], problems: Problems) -> None:
    """Report each reference that none of the URIs and URI templates in `served` can answer."""
    for uri, place in _references(document, problems):
        written = uri.partition("{")[0]  # where nothing is written, any URI may come
        if written and not any(overlap(uri, each) for each in served if _may_begin_with(each, written)):
            place.warning("no resource here has such a URI")


def _may_begin_with(served: str, written: str) -> bool:
    known = served.partition("{")[0]
    return known.startswith(written) or written.startswith(known)


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
