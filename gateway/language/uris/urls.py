"""Compiles URLs of HTTP backends: URI templates whose values cannot change the target.

Threats:

- Values that change the scheme, host or port.
- Path traversal with `..`, also encoded, double-encoded or after an encoded slash, because servers decode differently.
- Empty path segments, which select another resource.

The sender must not normalize the expanded URL.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import unquote

import msgspec

from gateway.errors import ExecutionError
from gateway.json_types import JsonObject
from gateway.language.scope import Scope
from gateway.language.templates.caller import is_fact_path, variable
from gateway.language.uris.templates import (
    Expansion,
    Part,
    UriExpression,
    UriTemplateError,
    names_in,
    parse_in_scope,
    parse_uri_template,
)


class UrlTemplate(msgspec.Struct, frozen=True, kw_only=True):
    scheme: str
    authority: tuple[str | Callable[[JsonObject], str], ...]
    path: tuple[str | Expansion, ...]
    empty_segments: int
    """Number of empty path segments in the template itself, such as the one before the first slash."""
    query: tuple[str | Expansion, ...]

    def expand(self, arguments: JsonObject) -> str:
        """Return the URL with the arguments inserted.

        Raises:
            ExecutionError: a value is not allowed.
        """
        authority = "".join([part if isinstance(part, str) else part(arguments) for part in self.authority])
        query = "".join([part if isinstance(part, str) else part.expand(arguments) for part in self.query])
        return f"{self.scheme}{authority}{self._path(arguments)}{query}"

    def _path(self, arguments: JsonObject) -> str:
        path = "".join([part if isinstance(part, str) else _given(part, arguments) for part in self.path])
        segments = path.split("/")
        # Without the first slash, as after an empty list in `{/var}`, values would become part of the host.
        if segments[0] or segments.count("") != self.empty_segments:
            raise self._rejection(
                "would leave a segment of the URL's path empty", arguments, lambda segment: not segment
            )
        if any(map(_is_dot_segment, segments)):
            raise self._rejection("would turn a segment of the URL's path into `.` or `..`", arguments, _is_dot_segment)
        return path

    def _rejection(self, reason: str, arguments: JsonObject, is_wrong: Callable[[str], bool]) -> ExecutionError:
        """Return an error that names the inputs with a wrong segment, or all inputs if only the whole is wrong."""
        expansions = [part for part in self.path if isinstance(part, Expansion)]
        wrong = [each for each in expansions if any(map(is_wrong, _segments(each, arguments)))]
        names = {name for each in wrong or expansions for name in each.names}
        return ExecutionError(f"{', '.join(f'`{name}`' for name in sorted(names))} {reason}")


def _segments(expansion: Expansion, arguments: JsonObject) -> list[str]:
    text = expansion.expand(arguments)
    # The slash of `{/var}` is part of the template, not of the value.
    return (text.removeprefix("/") if expansion.expression.operator == "/" else text).split("/")


_NOWHERE: Final = UrlTemplate(scheme="https://", authority=("invalid",), path=(), empty_segments=1, query=())
"""Placeholder for an invalid URL."""


def compile_url(source: str, *, base_url: str | None, scope: Scope) -> UrlTemplate:
    """Compile `http.url`, appended to the `base_url` of the connection if there is one. Errors are reported."""
    parts = parse_in_scope(source, scope)
    if not parts and source:
        return _NOWHERE
    try:
        absolute = parts if base_url is None else _after_base(_literal(base_url), parts)
        return _compile(absolute, scope)
    except UriTemplateError as error:
        scope.problems.error(str(error))
        return _NOWHERE


def base_url_problem(base_url: str) -> str | None:
    """Return the error in the `base_url` of a connection, or None."""
    if re.search(r"[{}]", base_url):
        return "cannot contain expressions. Put them into the `url` that uses the connection"
    if re.search(r"[?#]", base_url):
        return "cannot have a query or a fragment. Use the connection's `query`, which is added to each request"
    if _WEB_SCHEME.match(base_url) is None:
        return f"expected {_WEB_URL}"
    try:
        _, rest = _scheme_and_rest((_literal(base_url),))
        _check_authority(_cut(rest, at=_PATH_BEGINS)[0])
    except UriTemplateError as error:
        return str(error)
    return None


def _literal(base_url: str) -> str:
    return "".join(part for part in parse_uri_template(base_url) if isinstance(part, str))


_WEB_SCHEME: Final = re.compile(r"https?://", re.IGNORECASE)
_WEB_URL: Final = "a URL that starts with http:// or https://"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def _after_base(base_url: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Append `parts` to `base_url` with one slash, or without a slash before a query. `..` is not resolved."""
    first = parts[0] if parts else ""
    if isinstance(first, UriExpression):
        is_glued = first.operator in {"/", "?", "&"}
        return (base_url.rstrip("/") + ("" if is_glued else "/"), *parts)
    if _SCHEME.match(first):
        raise UriTemplateError("is an absolute URL, but the connection already has an address. Remove one of them")
    if not first or first.startswith("?"):
        return (base_url + first, *parts[1:])
    # RFC 3986 §5.2.2: `//host` would be another authority.
    return (f"{base_url.rstrip('/')}/{first.lstrip('/')}", *parts[1:])


def _compile(parts: tuple[Part, ...], scope: Scope) -> UrlTemplate:
    scheme, rest = _scheme_and_rest(parts)
    authority, rest = _cut(rest, at=_PATH_BEGINS)
    path, query = _cut(rest, at=_QUERY_BEGINS)
    _check_authority(authority)
    segments = _segments_of(path)
    _check_query(query)
    _check_always_given(names_in([*authority, *path]), scope)
    return UrlTemplate(
        scheme=scheme,
        authority=_compile_authority(authority),
        path=tuple(map(_expandable, path)),
        empty_segments=segments.count(""),
        query=tuple(map(_expandable, query)),
    )


def _expandable(part: Part) -> str | Expansion:
    return part if isinstance(part, str) else Expansion(part, kept="/")


def _scheme_and_rest(parts: tuple[Part, ...]) -> tuple[str, tuple[Part, ...]]:
    first = parts[0] if parts else ""
    match = _WEB_SCHEME.match(first) if isinstance(first, str) else None
    if match is None or not isinstance(first, str):
        raise UriTemplateError(f"expected {_WEB_URL}, or a `connection` next to it")
    # RFC 3986 §3.1: schemes are case-insensitive, and lower case is canonical.
    return match[0].lower(), (*filter(None, [first[match.end() :]]), *parts[1:])


_PATH_BEGINS: Final = frozenset("/?#&;")
_QUERY_BEGINS: Final = frozenset("?#&")
"""Characters that end the authority (`_PATH_BEGINS`) or path (`_QUERY_BEGINS`). `&` and `;` count only as operators."""
_LITERALS: Final = {at: re.compile(f"[{''.join(at - {'&', ';'})}]") for at in (_PATH_BEGINS, _QUERY_BEGINS)}


def _cut(parts: tuple[Part, ...], *, at: frozenset[str]) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    literal = _LITERALS[at]
    for index, part in enumerate(parts):
        if isinstance(part, UriExpression):
            if part.operator in at:
                return parts[:index], parts[index:]
        elif match := literal.search(part):
            head, tail = part[: match.start()], part[match.start() :]
            return (*parts[:index], *filter(None, [head])), (tail, *parts[index + 1 :])
    return parts, ()


_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


def _check_authority(parts: tuple[Part, ...]) -> None:
    for part in parts:
        if isinstance(part, UriExpression) and (part.operator or len(part.names) > 1 or part.has_modifier):
            raise UriTemplateError(f"`{part.source}` is not allowed in the host. Use {{name}}")
    written = "".join(part if isinstance(part, str) else part.source for part in parts)
    if "@" in written:
        # RFC 9110 §4.2.4: userinfo is deprecated, because it obscures the host.
        raise UriTemplateError("cannot contain a user and password. Use `headers: {Authorization: …}`")
    match = _AUTHORITY.fullmatch("".join(part if isinstance(part, str) else "x" for part in parts))
    if match is None or int(match["port"] or 0) > 65535:
        raise UriTemplateError(f"`{written}` is not a host, or host:port; expressions can only replace host labels")


_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_HOST: Final = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")


def _host_input(name: str, pattern: re.Pattern[str]) -> Callable[[JsonObject], str]:
    def expand(arguments: JsonObject) -> str:
        value = variable(name, arguments)
        if not (isinstance(value, str) and pattern.fullmatch(value)):
            what = "a host name" if pattern is _HOST else "one label of a host name (letters, digits, hyphens)"
            raise ExecutionError(f"`{name}` must be {what}: it is part of the URL's host")
        return value

    return expand


def _compile_authority(parts: tuple[Part, ...]) -> tuple[str | Callable[[JsonObject], str], ...]:
    is_whole_host = isinstance(parts[0], UriExpression) and all(str(part).startswith(":") for part in parts[1:])
    # Next to literal labels, a value must be a single label: `api.{x}` could otherwise be any domain.
    pattern = _HOST if is_whole_host else _LABEL
    return tuple(part if isinstance(part, str) else _host_input(part.names[0], pattern) for part in parts)


def _segments_of(parts: tuple[Part, ...]) -> list[str]:
    """Return the path segments of a template with an example instead of each value."""
    examples = ("/x" if part.operator == "/" else "x" for part in parts if isinstance(part, UriExpression))
    segments = "".join(part if isinstance(part, str) else next(examples) for part in parts).split("/")
    if wrong := next(filter(_is_dot_segment, segments), None):
        raise UriTemplateError(f"the path contains the segment `{wrong}`; write the resolved path")
    return segments


def _check_query(parts: tuple[Part, ...]) -> None:
    if any("#" in part if isinstance(part, str) else part.operator == "#" for part in parts):
        raise UriTemplateError("cannot have a fragment, because fragments are not sent to servers")
    for index, part in enumerate(parts):
        if isinstance(part, UriExpression) and part.operator == ("?" if index else "&"):
            begins = f"{'&' if index else '?'}{part.source[2:-1]}"
            raise UriTemplateError(
                f"a query starts with `?` and continues with `&`: write `{{{begins}}}` instead of `{part.source}`"
            )


def _check_always_given(names: Iterable[str], scope: Scope) -> None:
    for name in dict.fromkeys(names):
        if name not in scope.inputs.always_given and not is_fact_path(name):
            scope.problems.error(f"`{name}` is part of the host or path, so it must be required or have a default")


def _given(part: Expansion, arguments: JsonObject) -> str:
    for name in part.names:
        if variable(name, arguments) is None:
            raise ExecutionError(f"`{name}` must be given: it is part of the URL's path")
    return part.expand(arguments)


_DECODINGS: Final = 3
"""Maximum number of times that proxies and servers decode a path."""


def _is_dot_segment(segment: str) -> bool:
    """Whether a server can interpret the segment as `.` or `..`."""
    if "." not in segment and "%" not in segment:
        return False
    for _ in range(_DECODINGS):
        segment = unquote(segment)
        # Some servers remove parameters (`..;x`), or accept backslashes as slashes (WHATWG URL).
        if any(part.partition(";")[0] in {".", ".."} for part in re.split(r"[/\\]", segment)):
            return True
        if "%" not in segment:
            break
    return False
