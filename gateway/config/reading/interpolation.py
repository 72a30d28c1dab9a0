"""Replaces `${env:NAME}`, `${env:NAME:-default}` and `${file:/path}` in values.

Inserted text is literal (`InterpolatedText`). The `Use` of a field determines the rules for its value:

- values from files are always secret, values from the environment only in SECRET fields;
- values from files are rejected where clients can see them;
- in scripts, `${…}` is left to the shell.
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
from gateway.config.reading.nodes import Diagnostic, Invalid, Node, Place, Scalar, Sequence
from gateway.config.reading.source_file import SourceFile, UnreadableError, decode, has_surrogate, read_bytes
from gateway.config.secrets.literal_secrets import ADVICE, is_secret, is_secret_key
from gateway.errors import Severity
from gateway.json_types import DocumentPath, Json

# Matches the escape `$${`, an expression (whose default can contain one level of braces), or an unclosed `${`.
EXPRESSION: Final = re.compile(r"\$\$\{|\$\{((?:[^{}]|\{[^{}]*\})*)\}|\$\{")
_ENVIRONMENT: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_NAME: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-.*)?", re.DOTALL)
# Random, so that digests of short secrets cannot be brute-forced.
_KEY: Final = secrets.token_bytes(32)
_CLIENT_PATHS: Final[Map[str, Callable[[Path], str]]] = {
    "workspaceFolder": str,
    "workspaceRoot": str,
    "workspaceFolderBasename": lambda directory: directory.name,
    "cwd": str,
    "userHome": lambda _: os.path.expanduser("~"),  # noqa: PTH111 - pathlib raises without a home directory
    "pathSeparator": lambda _: os.sep,
    "/": lambda _: os.sep,
}
"""Maps each variable of VS Code and Cursor to a function that returns its value for a project directory."""
_FORMS: Final = "${env:NAME}, ${env:NAME:-default} and ${file:/path}"

ANY: Final = "*"
"""Placeholder for all keys without an entry."""
ITSELF: Final = ""
"""Placeholder for the value itself, if the value is a scalar or a list instead of a mapping."""

Uses = Use | Map[str, "Uses"]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    is_needed: bool
    """Whether any `${env:…}` refers to the variable without a default."""
    is_secret: bool


class Interpolator:
    """Interpolates values, and collects the secrets, files and variables that the values refer to."""

    def __init__(self, environ: Map[str, str]) -> None:
        self.diagnostics: list[Diagnostic] = []
        """Problems of all files. `Inclusion` and `Merger` add problems to the same list."""
        self.secrets: set[str] = set()
        self.files: dict[Path, str] = {}
        """Keyed digest of each file in `${file:}`, or "" for an unreadable file."""
        self.literal_secrets: list[Scalar] = []
        """Secrets that are written directly in a file. Excerpts of the file are shown with these secrets masked."""
        self.variables: dict[str, Variable] = {}
        """All environment variables that values refer to, whether set or not."""
        self.inserted: dict[str, set[str]] = {}
        """The values of each expression such as `${file:key}`, which is relative to the directory of its file."""
        self._environ = environ
        self._texts: dict[Path, str | UnreadableError] = {}

    def fill(self, node: Node, path: DocumentPath) -> Json:
        """Return the interpolated value of `node` at `path`."""
        section, *below = path
        uses = section_uses(str(section))
        for key in below:
            uses = _step(uses, key)
        return self._value(node, uses, path, str(path[-1]))

    def _value(self, node: Node, uses: Uses, path: DocumentPath, key: str) -> Json:
        if isinstance(node, Scalar):
            return self._scalar(node, uses, path, key)
        if isinstance(node, Sequence):
            return [self._value(item, uses, (*path, index), key) for index, item in enumerate(node.items)]
        result = {}
        # Everything below `api_keys` or `token` is secret, whatever the nested keys are.
        is_telling = is_secret_key(key)
        for name, entry in node.entries.items():
            below = (*path, name)
            if "${" in name:
                self.check_key(name, below, entry.place)
            result[name] = self._value(entry.node, _step(uses, name), below, key if is_telling else name)
        return result

    def _scalar(self, node: Scalar, uses: Uses, path: DocumentPath, key: str) -> Json:
        value, use = node.value, uses if isinstance(uses, Use) else uses.get(ITSELF, Use.PLAIN)
        has_references = isinstance(value, str) and "${" in value
        if use is Use.SECRET and is_secret_key(key):
            # A default can be a literal secret. A number can be one too, if the quotes are missing.
            is_literal = not has_references or ":-" in str(value)
            if is_literal and value is not None and not isinstance(value, bool):
                self.literal_secrets.append(node)
        if not isinstance(value, str):
            return value
        if is_secret(value, path, belongs_here=use is Use.SECRET):
            self.literal_secrets.append(node)
            self.diagnostics.append(Diagnostic(message=ADVICE, path=path, place=node.place, severity=Severity.WARNING))
        if not has_references or use is Use.SCRIPT or isinstance(value, Invalid):
            return value
        try:
            return self._text(value, node.place.source, use)
        except UnreadableError as error:
            self.diagnostics.append(Diagnostic(message=str(error), path=path, place=node.place))
            return Invalid(value)

    def _text(self, text: str, source: SourceFile, use: Uses) -> str:
        """Return the text with its expressions replaced.

        Raises:
            UnreadableError: an expression is invalid, or has no value.
        """
        parts: list[Part] = []
        literal = ""
        end = 0
        for match in EXPRESSION.finditer(text):
            literal += text[end : match.start()]
            end = match.end()
            if match[0] == "$${":
                literal += "${"
            else:
                inserted = self._inserted(match[1], source, use)
                self.inserted.setdefault(match[0], set()).add(inserted.text)
                parts += [literal, inserted]
                literal = ""
        literal += text[end:]
        return InterpolatedText(tuple(part for part in (*parts, literal) if part != "")) if parts else literal

    def _inserted(self, content: str | None, source: SourceFile, use: Uses) -> Interpolation:
        if content is None:
            raise UnreadableError("`${` without a closing `}`; for a literal `${`, write `$${`")
        if content.startswith("file:"):
            return self._from_file(content.removeprefix("file:"), source, use)
        if source.is_of_client:
            if (path := _CLIENT_PATHS.get(content)) is not None:
                return Interpolation(path(source.directory), secret=False)
            if content.startswith("input:"):
                return self._from_question(content.removeprefix("input:"), use)
            # MCP clients write `${NAME}` and `${NAME:-default}` for environment variables.
            if _NAME.fullmatch(content) is not None:
                content = f"env:{content}"
        if (variable := _ENVIRONMENT.fullmatch(content)) is not None:
            return self._from_environment(variable[1], variable[2], use)
        raise UnreadableError(_suggestion(content))

    def _from_environment(self, name: str, default: str | None, use: Uses) -> Interpolation:
        if default is not None and "${" in default:
            raise UnreadableError(f"the default of `${{env:{name}}}` is plain text; it cannot contain another `${{…}}`")
        self._note(name, is_needed=default is None, is_secret=use is Use.SECRET)
        value = self._environ.get(name)
        # As in a shell, `:-` applies to empty variables too.
        if not value and default is not None:
            value = default
        if value is None:
            message = f"the variable {name} is not set; for a default, write `${{env:{name}:-default}}`"
            raise UnreadableError(message)
        if has_surrogate(value):  # a byte that is not UTF-8 (PEP 383)
            raise UnreadableError(f"the value of the variable {name} is not UTF-8")
        return self._insert(value, is_secret=use is Use.SECRET)

    def _from_question(self, name: str, use: Uses) -> Interpolation:
        """Return the value of `${input:NAME}` from the variable `INPUT_<NAME>`, because there is no user to prompt."""
        variable = f"INPUT_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"
        if variable not in self._environ:
            self._note(variable, is_needed=True, is_secret=use is Use.SECRET)
            message = f"`${{input:{name}}}` prompts the user of a client, which is not possible here"
            raise UnreadableError(f"{message}; set the variable {variable} instead")
        return self._from_environment(variable, None, use)

    def _note(self, name: str, *, is_needed: bool, is_secret: bool) -> None:
        before = self.variables.get(name)
        self.variables[name] = Variable(
            is_needed=is_needed or (before is not None and before.is_needed),
            is_secret=is_secret or (before is not None and before.is_secret),
        )

    def _from_file(self, name: str, source: SourceFile, use: Uses) -> Interpolation:
        if use in SHOWN:
            raise UnreadableError(f"`${{file:{name}}}` is a secret, but clients can see this text")
        name, has_default, default = name.partition(":-")
        if not name:
            raise UnreadableError("`${file:}` has no path. Write `${file:/path}`")
        path = source.directory / os.path.expanduser(name)  # noqa: PTH111 - pathlib raises without a home directory
        if path not in self._texts:
            self._texts[path] = self._read(path)
        value = self._texts[path]
        if has_default and (isinstance(value, UnreadableError) or not value):
            value = default
        if isinstance(value, UnreadableError):
            raise UnreadableError(f"{name}: {value}")
        return self._insert(value, is_secret=True)

    def _read(self, path: Path) -> str | UnreadableError:
        self.files[path] = ""
        try:
            data = read_bytes(path)
            self.files[path] = hmac.digest(_KEY, data, "sha256").hex()
            text = decode(data)
        except UnreadableError as error:
            return error
        # Editors add one line break. Further line breaks belong to the secret, for example to a PEM key.
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


def _suggestion(content: str) -> str:
    wrong = f"`${{{content}}}`"
    if content.startswith("{") and content.endswith("}"):
        return f"{wrong} is unknown; did you mean {{{content}}}?"
    if _NAME.fullmatch(content) is not None:
        return f"{wrong} is unknown; did you mean ${{env:{content}}}?"
    if content.startswith(("/", "./", "../", "~/")):
        return f"{wrong} is unknown; did you mean ${{file:{content}}}?"
    return f"{wrong} is unknown. Available are {_FORMS}, and `$${{` for a literal `${{`"


@cache
def section_uses(section: str) -> Uses:
    """Return the `Use` of each value in a section, as a tree of keys."""
    field = Document.model_fields[section]
    return _uses_of(field.annotation, use_of(field.metadata, default=Use.PLAIN))


def _step(uses: Uses, key: str | int) -> Uses:
    if isinstance(uses, Use) or isinstance(key, int):
        return uses
    return uses[key] if key in uses else uses.get(ANY, Use.PLAIN)


def _uses_of(annotation: object, use: Use) -> Uses:
    """Return the `Use` of each value that a type annotation allows: `use`, unless the annotation declares another."""
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
    # The value of a misplaced or misspelt key can be a secret, which the error message must not show.
    return {**fields, ANY: Use.SECRET}
