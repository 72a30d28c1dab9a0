"""Replaces `${env:NAME}`, `${env:NAME:-default}` and `${file:/path}` in values.

Inserted text is literal (`InterpolatedText`). The use of a value (`field_use.Use`) determines the rules:

- values from files are always secret, values from the environment only in SECRET fields;
- values from files are rejected where clients can see them;
- in scripts, `${…}` belongs to the shell.
"""

import hmac
import os
import re
import secrets
from collections.abc import Callable
from collections.abc import Mapping as Map
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Final, get_args, get_origin

import msgspec
from pydantic import BaseModel

from gateway.config.models.base import SHOWN, Use, alternatives, use_of
from gateway.config.models.document import Document
from gateway.config.models.interpolated_text import InterpolatedText, Interpolation, Part
from gateway.config.reading.nodes import Diagnostic, Invalid, Node, Place, Scalar, Sequence, place_of
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, has_surrogate, read_bytes
from gateway.config.secrets.literal_secrets import ADVICE, is_secret, is_secret_key
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json

# The escape `$${`, an expression whose default can contain a level of braces, or an unclosed expression.
_EXPRESSION: Final = re.compile(r"\$\$\{|\$\{((?:[^{}]|\{[^{}]*\})*)\}|\$\{")
_ENVIRONMENT: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
# Random, so that digests of short secrets cannot be brute-forced.
_KEY: Final = secrets.token_bytes(32)
_CLIENT_PATHS: Final[Map[str, Callable[[Path], str]]] = {
    "workspaceFolder": str,
    "workspaceRoot": str,
    "workspaceFolderBasename": lambda directory: directory.name,
    "cwd": str,
    "userHome": lambda _: os.path.expanduser("~"),  # noqa: PTH111 - pathlib's raises where there is no home
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}
"""Variables of VS Code and Cursor → value for a project directory."""
_FORMS: Final = "${env:NAME}, ${env:NAME:-default} and ${file:/path}"

ANY: Final = "*"
"""Any other key."""
ITSELF: Final = ""
"""The value itself, if it is text or a list instead of a mapping."""

Uses = Use | Map[str, "Uses"]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    is_needed: bool
    """Whether any reference lacks a default."""
    is_secret: bool


class Interpolator:
    """Interpolates values, and collects secrets, files and variables."""

    def __init__(self, environ: Map[str, str]) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.secrets: set[str] = set()
        self.files: dict[Path, str] = {}
        """Files in `${file:}` → keyed digest, or "" for an unreadable file."""
        self.literal_secrets: list[Scalar] = []
        """Secrets written directly in the file. Excerpts of the file mask them."""
        self.variables: dict[str, Variable] = {}
        """All variables, set or not."""
        self._environ = environ
        self._texts: dict[Path, str | UnreadableError] = {}
        self._path: list[str | int] = []
        self._place: Place | None = None

    def fill(self, node: Node, path: DocumentPath) -> Json:
        """Return the interpolated value of `node` at `path`."""
        section, *below = path
        uses = section_uses(str(section))
        for key in below:
            uses = step(uses, key)
        self._path = list(path)
        return self._value(node, uses, key=str(path[-1]))

    def _value(self, node: Node, uses: Uses, *, key: str) -> Json:
        if isinstance(node, Scalar):
            return self._scalar(node, uses, key)
        path = self._path
        if isinstance(node, Sequence):
            values = []
            path.append(0)
            for index, item in enumerate(node.items):
                path[-1] = index
                values.append(self._value(item, uses, key=key))
            path.pop()
            return values
        result = {}
        is_telling = is_secret_key(key)
        path.append("")
        for name, entry in node.entries.items():
            path[-1] = name
            if "${" in name:
                self.check_key(name, tuple(path), entry.place)
            # Everything below `api_keys` or `token` is secret, whatever its keys.
            result[name] = self._value(entry.node, step(uses, name), key=key if is_telling else name)
        path.pop()
        return result

    def _scalar(self, node: Scalar, uses: Uses, key: str) -> Json:
        value = node.value
        use = text_use(uses)
        if not isinstance(value, str):
            if use is Use.SECRET and is_secret_key(key) and _is_number(value):
                self.literal_secrets.append(node)  # digits without quotes
            return value
        has_references = "${" in value
        # A default can be a literal secret.
        if use is Use.SECRET and (not has_references or ":-" in value) and is_secret_key(key):
            self.literal_secrets.append(node)
        if is_secret(value, self._path, belongs_here=use is Use.SECRET):
            self.literal_secrets.append(node)
            self._warn(ADVICE, place_of(None, node))
        if not has_references or use is Use.SCRIPT or isinstance(value, Invalid):
            return value
        self._place = place_of(None, node)
        return self._text(value, node.place.source, use)

    def _text(self, text: str, source: SourceFile, use: Use) -> str:
        parts: list[Part] = []
        literal = ""
        end = 0
        for match in _EXPRESSION.finditer(text):
            literal += text[end : match.start()]
            end = match.end()
            if match[0] == "$${":
                literal += "${"
                continue
            inserted = self._inserted(match, source, use)
            if inserted is None:
                return Invalid(text)
            if literal:
                parts.append(literal)
            parts.append(inserted)
            literal = ""
        literal += text[end:]
        if not parts:
            return literal
        if literal:
            parts.append(literal)
        return InterpolatedText(tuple(parts))

    def _inserted(self, match: re.Match[str], source: SourceFile, use: Use) -> Interpolation | None:
        """Return the value of one `${…}`, or None after reporting an error."""
        content = match[1]
        if content is None:
            self._fail("`${` without a closing `}`; for a literal `${`, write `$${`")
            return None
        if content.startswith("file:"):
            return self._from_file(content.removeprefix("file:"), source, use)
        if source.is_of_client:
            if (path := _CLIENT_PATHS.get(content)) is not None:
                return Interpolation(path(source.directory), secret=False)
            if content.startswith("input:"):
                return self._from_question(content.removeprefix("input:"), use)
            # Clients write `${NAME}` and `${NAME:-default}`.
            if _NAME.fullmatch(content) is not None:
                content = f"env:{content}"
        if (variable := _ENVIRONMENT.fullmatch(content)) is not None:
            return self._from_environment(variable[1], variable[2], use)
        self._fail(_suggestion(content))
        return None

    def _from_environment(self, name: str, default: str | None, use: Use) -> Interpolation | None:
        if default is not None and "${" in default:
            self._fail(f"the default of `${{env:{name}}}` is plain text; it cannot contain another `${{…}}`")
            return None
        self._note(name, is_needed=default is None, is_secret=use is Use.SECRET)
        value = self._environ.get(name)
        # As in a shell, `:-` applies to empty variables too.
        if not value and default is not None:
            value = default
        if value is None:
            self._fail(f"the variable {name} is not set; for a default, write `${{env:{name}:-default}}`")
            return None
        if has_surrogate(value):  # a byte that is not UTF-8 (PEP 383)
            self._fail(f"the value of the variable {name} is not UTF-8")
            return None
        return self._insert(value, is_secret=use is Use.SECRET)

    def _from_question(self, name: str, use: Use) -> Interpolation | None:
        """Return the value for a client's prompt. There is no user to prompt, so a variable replaces it."""
        variable = f"INPUT_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
        if variable not in self._environ:
            self._note(variable, is_needed=True, is_secret=use is Use.SECRET)
            message = f"`${{input:{name}}}` prompts the user of a client, which is not possible here"
            self._fail(f"{message}; set the variable {variable} instead")
            return None
        return self._from_environment(variable, None, use)

    def _note(self, name: str, *, is_needed: bool, is_secret: bool) -> None:
        before = self.variables.get(name)
        self.variables[name] = Variable(
            is_needed=is_needed or (before is not None and before.is_needed),
            is_secret=is_secret or (before is not None and before.is_secret),
        )

    def _from_file(self, name: str, source: SourceFile, use: Use) -> Interpolation | None:
        if use in SHOWN:
            self._fail(f"`${{file:{name}}}` is a secret, but clients can see this text")
            return None
        name, has_default, default = name.partition(":-")
        if not name:
            self._fail("`${file:}` has no path; write `${file:/path}`")
            return None
        path = source.directory / os.path.expanduser(name)  # noqa: PTH111 - pathlib's raises where there is no home
        value = self._text_of(path)
        if has_default and (isinstance(value, UnreadableError) or not value):
            value = default
        if isinstance(value, UnreadableError):
            self._fail(f"{name}: {value}")
            return None
        return self._insert(value, is_secret=True)

    def _text_of(self, path: Path) -> str | UnreadableError:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: Path) -> str | UnreadableError:
        self.files[path] = ""
        try:
            data = read_bytes(path)
            self.files[path] = hmac.digest(_KEY, data, "sha256").hex()
            text = decode(data)
        except UnreadableError as error:
            return error
        # Editors add one line break. Others belong to the secret, such as a PEM key.
        return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text

    def _insert(self, text: str, *, is_secret: bool) -> Interpolation:
        if is_secret and text:
            self.secrets.add(text)
        return Interpolation(text, is_secret)

    def check_key(self, key: str, path: DocumentPath, place: Place) -> bool:
        """Report `${…}` in a key. Return whether the key is valid."""
        if "${env:" not in key and "${file:" not in key:
            return True
        message = "`${…}` is allowed only in values, not in keys"
        self.diagnostics.append(Diagnostic(message=message, path=path, place=place))
        return False

    def _warn(self, message: str, place: Place) -> None:
        self.warnings.append(
            Diagnostic(message=message, path=tuple(self._path), place=place, severity=Severity.WARNING)
        )

    def _fail(self, message: str) -> None:
        self.diagnostics.append(Diagnostic(message=message, path=tuple(self._path), place=self._place))


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _suggestion(content: str) -> str:
    """Return the message for an unknown `${content}`, with a suggestion."""
    wrong = f"`${{{content}}}`"
    if content.startswith("{") and content.endswith("}"):
        return f"{wrong} is unknown; did you mean {{{content}}}?"
    if _NAME.fullmatch(content) is not None:
        return f"{wrong} is unknown; did you mean ${{env:{content}}}?"
    if content.startswith(("/", "./", "../", "~/")):
        return f"{wrong} is unknown; did you mean ${{file:{content}}}?"
    return f"{wrong} is unknown; available are {_FORMS}, and `$${{` for a literal `${{`"


@cache
def section_uses(section: str) -> Uses:
    """Return the uses of all values in a section, as a tree of keys."""
    field = Document.model_fields[section]
    return _uses_of(field.annotation, use_of(field.metadata, default=Use.PLAIN))


def step(uses: Uses, key: str | int) -> Uses:
    """Return the uses below a key or index."""
    if isinstance(uses, Use) or isinstance(key, int):
        return uses
    return uses[key] if key in uses else uses.get(ANY, Use.PLAIN)


def text_use(uses: Uses) -> Use:
    """Return the use of text at this position."""
    if isinstance(uses, Use):
        return uses
    use = uses.get(ITSELF, Use.PLAIN)
    return use if isinstance(use, Use) else Use.PLAIN


def _uses_of(annotation: object, use: Use) -> Uses:
    """Return the uses of values that an annotation allows. `use` is the default."""
    uses: dict[str, Uses] = {ITSELF: use, ANY: use}
    for kind, metadata in alternatives(annotation):
        if kind is not NoneType:
            below = _below(kind, use_of(metadata, default=use))
            uses |= {ITSELF: below} if isinstance(below, Use) else below
    return use if all(each is use for each in uses.values()) else uses


def _below(kind: object, use: Use) -> Uses:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in {list, tuple}:
        return _uses_of(arguments[0], use)
    if origin is dict:
        return {ANY: _uses_of(arguments[1], use)}
    return _uses_in(kind, use) if isinstance(kind, type) and issubclass(kind, BaseModel) else use


@cache  # many models occur several times
def _uses_in(model: type[BaseModel], use: Use) -> Uses:
    fields = {
        field.alias or name: _uses_of(field.annotation, use_of(field.metadata, default=use))
        for name, field in model.model_fields.items()
    }
    # Values of misplaced and misspelt keys can be secrets, which their errors must not show.
    return {**fields, ANY: Use.SECRET}
