"""Converts outcomes to tool results.

The steps are: parse, select, sanitize, validate, format as text, shorten. Secrets are masked before shortening, so that
no part of a secret remains.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec
import orjson
from jmespath.parser import ParsedResult
from msgspec.structs import replace

from gateway import exact_json
from gateway.control_characters import with_newlines
from gateway.errors import ExecutionError
from gateway.executors.invocation import (
    Blocks,
    Failure,
    Invocation,
    Outcome,
    RawOutput,
    Relayed,
    ToolResult,
    Value,
    sole_text,
    text_size,
)
from gateway.executors.output.formats import PARSERS, TextFormat, parsed, select
from gateway.executors.output.media_types import JSON, OCTETS, PLAIN_TEXT, declared_encoding, decoded, media_kind
from gateway.executors.output.sanitizer import Sanitizer
from gateway.executors.output.size_limit import OutputCounters, SizeLimit, text_block
from gateway.json_types import ABSENT, Json, JsonObject
from gateway.language.files.media_types import essence
from gateway.language.schemas.json_schema import Validator, validation_errors
from gateway.language.templates.expressions import ALL_INPUTS
from gateway.language.templates.render_state import json_of
from gateway.language.templates.templating import TextTemplate
from gateway.threads import MAX_ON_LOOP, DaemonThreadPool, TimedCall, run_in_thread

T = TypeVar("T")


def accepted(value: Json, *, schema: JsonObject, place: str, counters: OutputCounters) -> JsonObject:
    """Return structured content for a value that need not match the schema. Mismatches are counted and logged."""
    if errors := validation_errors(schema, value):
        counters.note_mismatch(place, str(errors[0]))
    return value if isinstance(value, dict) else {"result": value}


Form = Literal["text", "json", "image", "audio", "binary"] | TextFormat


class OutputTraits(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...] = ()
    """Variables for `output.template`, in addition to `result` and the inputs."""
    has_media_type: bool = False
    is_bytes: bool = False
    """Whether bytes are binary unless their media type is text or JSON. Otherwise, valid UTF-8 is also text."""
    keeps_documents: bool = False
    """Whether embedded resources keep their control characters."""
    is_table: bool = False
    """Whether the output consists of database rows, to which a text format such as `csv` does not apply."""
    is_fixed: bool = False
    """Whether the backend returns the fixed `content` of the configuration."""


class ResultShaper(msgspec.Struct, frozen=True, kw_only=True):
    traits: OutputTraits
    format: Literal["auto"] | Form
    mime_type: str | None
    select: ParsedResult | None
    template: TextTemplate | None
    schema: Validator | Callable[[Json], JsonObject] | None
    """Validates structured content. A function instead accepts any value and returns an object."""
    sanitizer: Sanitizer
    room: SizeLimit

    def shape(self, outcome: Outcome, invocation: Invocation) -> ToolResult:
        """Convert an outcome to a tool result. A failed conversion becomes an error result for the model."""
        try:
            match outcome:  # most frequent first
                case Blocks():
                    return self._blocks(outcome, invocation)
                case RawOutput(note=note):
                    result = self._raw(outcome, invocation)
                    return replace(result, content=(*result.content, text_block(note))) if note else result
                case Value(value=value, text=text):
                    return self._value(value, invocation, text=text)
                case Relayed():
                    return self._relayed(outcome, invocation)
                case Failure(text=text):
                    return self._error(text)
        except ExecutionError as error:
            return self._error(str(error))

    def _error(self, text: str) -> ToolResult:
        # Show at least 4 KiB, so that the message is understandable.
        shown = self.room.cut(self.sanitizer.text(text), at_least=4096)
        return ToolResult(content=(text_block(shown),), is_error=True)

    def _blocks(self, blocks: Blocks, invocation: Invocation) -> ToolResult:
        if not blocks.is_error and self.schema is not None:
            raise ExecutionError("The tool declares structured content, but returned content blocks")
        return ToolResult(content=self._finished(blocks.content, invocation), is_error=blocks.is_error)

    def _finished(self, content: Sequence[JsonObject], invocation: Invocation) -> Sequence[JsonObject]:
        text = sole_text(content)
        if text is not None and self.room.has_room_for(sanitized := self.sanitizer.text(text)):
            return (text_block(sanitized),)
        return [finished for block in content for finished in self._block(block, invocation)]

    def _block(self, block: JsonObject, invocation: Invocation) -> Sequence[JsonObject]:
        match block:
            case {"type": "text", "text": str(text), **others}:
                # Annotations need a block, even for an empty text.
                first, *more = self.room.text_blocks(self.sanitizer.text(text), invocation) or [text_block("")]
                return [{**first, **self.sanitizer.block(others)}, *more]
            case _:
                return [self.sanitizer.block(block)]

    def _relayed(self, result: Relayed, invocation: Invocation) -> ToolResult:
        """Convert the result of an upstream server. Without `output`, only sanitize the result and limit its size."""
        is_reshaped = self.format != "auto" or any(
            part is not None for part in (self.select, self.template, self.schema)
        )
        if is_reshaped and not result.is_error:
            text = sole_text(result.content)
            if result.structured is not ABSENT:
                return self._value(result.structured, invocation)
            if text is not None:
                return self._raw(RawOutput(data=text.encode(errors="surrogatepass")), invocation)
        content = self._finished(result.content, invocation)
        if sole_text(content) is None:
            content = self.room.fitting(content)
        meta = self.sanitizer.json(result.meta) if result.meta else result.meta
        if meta and text_size(meta) > self.room.max_size:
            meta = {}
        structured = result.structured if result.structured is ABSENT else self.sanitizer.json(result.structured)
        # MCP 2025-11-25 server/tools, "Output Schema": structured content is required, and JSON cannot be shortened.
        if structured is not ABSENT and not self.room.has_room_for(written := json_of(structured)):
            return self._at_link(written, invocation)
        return ToolResult(content=content, structured=structured, is_error=result.is_error, meta=meta)

    def _value(self, value: Json, invocation: Invocation, *, text: str | None = None) -> ToolResult:
        """Convert a JSON value. A scalar becomes structured content only if a schema or format requires structure.

        `text` replaces the JSON in the text content, unless `select` is configured.
        """
        if self.format in {"image", "audio", "binary"}:
            raise ExecutionError(f"The tool declares {self.format} content, but its function returned no bytes")
        if isinstance(value, str) and self.format in PARSERS:
            return self._raw(RawOutput(data=value.encode(errors="replace")), invocation)
        value = self.sanitizer.json(self._selected(value))
        is_structured = self.format == "json" or self.schema is not None or isinstance(value, list | dict)
        if value is None and not is_structured and self.template is None:
            return ToolResult(content=())
        shown = None if text is None or self.select is not None else self.sanitizer.text(text)
        is_structured = is_structured and self.format != "text"
        return self._json(value, {}, invocation, is_structured=is_structured, shown=shown)

    def _raw(self, output: RawOutput, invocation: Invocation) -> ToolResult:
        is_lenient = (
            self.template is None and self.format in {"auto", "json"} and not isinstance(self.schema, Validator)
        )
        if output.success is not None and not output.data.strip() and is_lenient:
            return ToolResult(content=(text_block(self.sanitizer.text(output.success)),))
        match self._form(output):
            case "text":
                return self._plain(output, invocation)
            case "image" | "audio" | "binary" as form:
                return self._bytes(form, output, invocation)
            case form:
                return self._parsed(form, output, invocation)

    def _form(self, output: RawOutput) -> Form:
        if self.format != "auto":
            return self.format
        if self.schema is not None or self.select is not None:
            return "json"
        media_type = self.mime_type or output.media_type
        if media_type is None:  # programs write text, but functions return binary data
            return "binary" if self.traits.is_bytes else "text"
        form = media_kind(media_type)
        # A response without a body, such as 204, can have a media type.
        if form == "json" and not output.data:
            return "text"
        return form or ("binary" if self.traits.is_bytes or not _is_utf8(output.data) else "text")

    def _plain(self, output: RawOutput, invocation: Invocation) -> ToolResult:
        if self.select is not None:
            value = self.sanitizer.json(self._selected(self._read_json(output)))
            return self._json(value, output.variables, invocation, is_structured=False)
        text, omitted = self._decoded(output), output.omitted
        said = output.variables.get("stderr")
        if said and self.template is None and not text.strip():
            text = f"stderr:\n{said}"
        if omitted:
            omitted -= len(_gap(output).encode())  # do not count the note about the gap
        return ToolResult(content=self._written(text, output.variables, invocation, omitted=omitted))

    def _parsed(self, form: Form, output: RawOutput, invocation: Invocation) -> ToolResult:
        try:
            value = self._read_text(form, output) if form in PARSERS else self._read_json(output)
        except ExecutionError:
            if self.format == "auto" and self.schema is None and self.select is None:
                return self._plain(output, invocation)  # the media type was wrong
            raise
        value = self.sanitizer.json(self._selected(value))
        return self._json(value, output.variables, invocation, is_structured=True)

    def _json(
        self,
        value: Json,
        variables: JsonObject,
        invocation: Invocation,
        *,
        is_structured: bool,
        shown: str | None = None,
    ) -> ToolResult:
        value = self._validated(value)
        is_text = isinstance(value, str) and not is_structured
        text, media_type = (value, PLAIN_TEXT) if is_text else (json_of(value), JSON)
        has_room = not is_structured or self.room.has_room_for(text)
        if not has_room and self.schema is not None:
            return self._at_link(text, invocation)
        if shown is not None and has_room:
            text, media_type = shown, PLAIN_TEXT
        content = self._written(value, variables, invocation, text=text, media_type=media_type)
        return ToolResult(content=content, structured=value if is_structured and has_room else ABSENT)

    def _at_link(self, written: str, invocation: Invocation) -> ToolResult:
        # Structured content can neither be shortened nor omitted.
        link = self.room.link(written, invocation, media_type=JSON)
        reason = str(self.room.too_large(len(written.encode())))
        return ToolResult(content=(text_block(f"{reason}. It can be read as a resource"), link), is_error=True)

    def _written(  # noqa: PLR0913 - the result and its context
        self,
        result: Json,
        variables: JsonObject,
        invocation: Invocation,
        *,
        text: str | None = None,
        media_type: str = PLAIN_TEXT,
        omitted: int = 0,
    ) -> Sequence[JsonObject]:
        if self.template is not None:
            names = {**variables, "result": result, ALL_INPUTS: invocation.variables}
            text, media_type = self.sanitizer.text(self.template.render(names)), PLAIN_TEXT
        return self.room.text_blocks(
            result if text is None else text, invocation, media_type=media_type, omitted=omitted
        )

    def _bytes(self, form: Form, output: RawOutput, invocation: Invocation) -> ToolResult:
        media_type = essence(self.mime_type or output.media_type)
        if form != "binary" and not media_type.startswith(f"{form}/"):
            raise ExecutionError(f"The output is {media_type or 'of an unknown type'}, but must be {form}/…")
        media_type = media_type or OCTETS
        # Reject bytes that contain a secret, because masking would corrupt the file.
        self.sanitizer.check_bytes(output.data)
        self._require_whole(output)
        if not self.room.has_room_for(output.data):
            return ToolResult(content=(self.room.link(output.data, invocation, media_type=media_type),))
        encoded = base64.b64encode(output.data).decode("ascii")
        if form != "binary":
            return ToolResult(content=({"type": form, "data": encoded, "mimeType": media_type},))
        resource = {"uri": _name_of(output.data), "mimeType": media_type, "blob": encoded}
        return ToolResult(content=({"type": "resource", "resource": resource},))

    def _decoded(self, output: RawOutput) -> str:
        if not output.omitted:
            return self.sanitizer.text(self._lines(decoded(output.data, output.media_type)))
        half = len(output.data) // 2
        head, tail = self._lines(decoded(output.data[:half])), self._lines(decoded(output.data[half:]))
        return f"{self.sanitizer.head(head)}{_gap(output)}{self.sanitizer.tail(tail)}"

    def _lines(self, text: str) -> str:
        return text if self.sanitizer.keeps_controls else with_newlines(text)

    def _read_text(self, form: str, output: RawOutput) -> Json:
        self._require_whole(output)
        return parsed(decoded(output.data, output.media_type), form)

    def _require_whole(self, output: RawOutput) -> None:
        if output.omitted:
            raise self.room.too_large(len(output.data) + output.omitted)

    def _read_json(self, output: RawOutput) -> Json:
        self._require_whole(output)
        try:
            # RFC 8259 §8.1: a byte order mark can be ignored. Old servers use other charsets.
            encoding = declared_encoding(output.data, output.media_type)
            data = output.data if encoding is None else output.data.decode(encoding, errors="replace")
            return exact_json.loads(data)
        except orjson.JSONDecodeError as error:
            start = self._decoded(output)[:200].strip()
            raise ExecutionError(f"The output is not JSON ({error}). It starts with: {start or 'nothing'}") from error

    def _selected(self, value: Json) -> Json:
        return value if self.select is None else select(self.select, value, key="select")

    def _validated(self, value: Json) -> Json:
        if self.schema is None:
            return value
        if not isinstance(self.schema, Validator):
            return self.schema(value)
        if errors := self.schema.errors(value):
            reasons = "\n".join(f"- {error}" for error in errors)
            raise ExecutionError(f"The output does not match the tool's output schema:\n{reasons}")
        return value


def _gap(output: RawOutput) -> str:
    return f"\n[… {output.omitted} bytes omitted …]\n" if output.omitted else ""


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _name_of(data: bytes) -> str:
    """Return an `ni:` URI that contains the SHA-256 digest of the bytes (RFC 6920)."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode("ascii")
    return f"ni:///sha-256;{digest}"


async def shaped(shape: Callable[[], T], *, size: int, call: TimedCall, threads: DaemonThreadPool) -> T:
    """Return the result of `shape()`. Call `shape` in a thread if `size` is more than `MAX_ON_LOOP` bytes.

    Raise ExecutionError if no thread is free, or if `shape` does not return before the deadline of `call`.
    """
    if size <= MAX_ON_LOOP:
        return shape()
    return await run_in_thread(shape, what="Shaping the large output", call=call, threads=threads)
