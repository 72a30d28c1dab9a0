"""Bodies of HTTP backends, checked by a real server: multipart, nested forms, files."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from aiohttp import web

from gateway.config.models.backends import Http
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.http.executor import HttpExecutor, compile_http
from gateway.executors.invocation import RawOutput
from gateway.executors.shared_services import Services
from gateway.json_types import Json, JsonObject
from gateway.language.files.file_argument import FileArgument
from gateway.language.scope import Inputs, Scope
from tests.executors.recording import make_invocation, make_scope, messages_of
from tests.local_server import listening

PHOTO: Final = FileArgument(b"\x89PNG\r\n\x1a\n" * 100_000, media_type="image/png", name="lamp.png")


class Server:
    """Reads requests, and responds to the first ones with 503."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.parts: list[tuple[str | None, str | None, str | None, bytes]] = []
        self.failures = 0
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        if self.failures:
            self.failures -= 1
            await request.read()
            return web.Response(status=503)
        if request.content_type == "multipart/form-data":
            self.parts = []
            async for part in await request.multipart():
                data: Any = await part.read()  # type: ignore[union-attr]
                self.parts.append((part.name, part.filename, part.headers.get("Content-Type"), bytes(data)))  # type: ignore[union-attr]
        else:
            self.bodies.append(await request.read())
        return web.Response(text="taken")


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    application = web.Application(client_max_size=2**28)
    application.router.add_route("*", "/{path:.*}", server.handle)
    async with listening(application) as port:
        server.url = f"http://127.0.0.1:{port}"
        yield server


def compiled(services: Services, server: Server, config: JsonObject, folder: Path = Path("/")) -> HttpExecutor:
    inputs = Inputs(schemas={"f": {"type": "file"}, "fs": {"type": "array"}, "v": {}}, has_files=True)
    scope = Scope(inputs=inputs, problems=make_scope(folder=folder).problems)
    http = Http.model_validate({"url": f"{server.url}/x", "allow_private": True, "method": "PUT", **config})
    executor = compile_http(http, connections={}, scope=scope, services=services, redactor=Redactor())
    assert messages_of(scope) == []
    assert isinstance(executor, HttpExecutor)
    return executor


async def sent(executor: HttpExecutor, **arguments: Json) -> None:
    outcome = await executor.execute(make_invocation(arguments))
    assert isinstance(outcome, RawOutput), outcome


async def test_parts_are_files_texts_or_json(services: Services, server: Server, tmp_path: Path) -> None:
    (tmp_path / "terms.txt").write_bytes(b"x" * 3_000_000)
    executor = compiled(
        services,
        server,
        {
            "multipart": {
                "f": "{{ f }}",
                "more": {"file": "{{ fs }}", "type": "application/x-own"},
                "v": "{{ v }}",
                "terms": {"file": "terms.txt", "name": "t-{{ v | length }}.txt"},
                "meta": {"json": {"v": "{{ v }}"}},
                "fixed": ["a", {"text": "b", "type": "text/markdown"}],
            }
        },
        tmp_path,
    )
    await sent(executor, f=PHOTO, fs=[FileArgument(b"1"), FileArgument(b"2", name="two")], v=["x", 1, {"a": None}])
    assert server.parts == [
        ("f", "lamp.png", "image/png", PHOTO.data),
        ("more", "more", "application/x-own", b"1"),
        ("more", "two", "application/x-own", b"2"),
        ("v", None, None, b"x"),
        ("v", None, None, b"1"),
        ("v", None, "application/json", b'{"a":null}'),
        ("terms", "t-3.txt", "text/plain", b"x" * 3_000_000),
        ("meta", None, "application/json", b'{"v":["x",1,{"a":null}]}'),
        ("fixed", None, None, b"a"),
        ("fixed", None, "text/markdown", b"b"),
    ]
    assert int(server.seen[0].headers["Content-Length"]) > 3_800_000
    await sent(executor, v=None)
    assert [name for name, *_ in server.parts] == ["terms", "meta", "fixed", "fixed"]


async def test_retried_body_is_sent_whole(services: Services, server: Server) -> None:
    server.failures = 2
    retry = {"attempts": 3, "on": [503]}
    await sent(compiled(services, server, {"multipart": {"f": "{{ f }}"}, "retry": retry}), f=PHOTO)
    assert server.parts == [("f", "lamp.png", "image/png", PHOTO.data)]
    server.failures = 1
    await sent(compiled(services, server, {"body": "{{ f }}", "retry": retry}), f=PHOTO)
    assert server.bodies == [PHOTO.data]
    assert server.seen[-1].headers["Content-Type"] == "image/png"


async def test_file_of_the_configuration_is_limited_and_must_exist(
    services: Services, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big").write_bytes(bytes(2**22))
    executor = compiled(services, server, {"body": {"file": "big"}}, tmp_path)
    await sent(executor)
    assert server.bodies == [bytes(2**22)]
    monkeypatch.setattr("gateway.executors.http.multipart.MAX_FILE", 2**21)
    with pytest.raises(ExecutionError, match="is larger than 2 MiB"):
        await sent(executor)
    (tmp_path / "big").unlink()
    with pytest.raises(ExecutionError, match=r"cannot read .*: No such file"):
        await sent(executor)
    (tmp_path / "big").mkdir()
    with pytest.raises(ExecutionError, match="not a regular file"):
        await sent(executor)


HOSTILE: Final = [
    'a"; filename="evil.sh', "a\r\nX-Admin: 1", "a\r\n\r\nbody", "a\nb", "a\r", '\\"', "../../etc/passwd",
    "..\\..\\boot.ini", "/", "", ".", "a" * 10_000, "\x00", "\x7f\x1b[2J", "ü.png", "😀.png", "\u202egnp.exe",
    "\ud800", "%22%0D%0A", "; name=admin", "=?utf-8?q?x?=", "filename*=UTF-8''x", "a\u2028b", "\u0085", "a;b=c",
    "--mcp-gateway-", "\r\n--mcp-gateway--\r\n", "name\r\n\tfolded", "'\"`$(id)", "a\x0bb\x0cc",
    # RFC 2231, RFC 8187 and RFC 2047: encodings of names that receivers can decode again.
    "utf-8''%2e%2e%2fpasswd", "UTF-8'en'%0d%0aX: 1", "filename*0=a; filename*1=b", "*0*=utf-8''a", "a*", "name*=x",
    "=?utf-8?b?Li4vLi4v?=", "=?iso-8859-1?q?=0D=0AX:_1?=", "%e2%80%ae", "%", "%2", "%zz", "%00.png", "%2525", "+",
    # Quotes, escapes and separators of parameters (RFC 9110 §5.6.4).
    'a\\"b', "a\\", "\\\\", '""', '"', ';"', '";', 'x" ;name="v', "a=b", "a,b", "a:b", "<a>", "[a]", "f[]", "{{ v }}",
    # Injected fields and parts: folded lines (RFC 5322 §2.2.3), bare CR, other line ends, boundaries.
    "a\r\n b", "a\n\tb", "\rX-Admin: 1", "\n\n", "\r\n\r\n", "a\u2029b", "a\x1cb\x1db\x1eb", "--", "----", "\r\n--",
    "\r\n----\r\n", "boundary=x", "--mcp-gateway-0--", "\n--mcp-gateway-0\nContent-Disposition: form-data; name=v\n\n",
    "Content-Transfer-Encoding: base64", "\r\nContent-Transfer-Encoding: base64\r\n\r\n", "\r\nContent-Length: 0\r\n",
    # Paths and names with a meaning for operating systems.
    "C:\\a.png", "\\\\host\\share", "a.png::$DATA", "CON", ".htaccess", "a.php\x00.png", "a.png/", "...", "~", "-rf",
    "a" * 255 + ".png", "ü" * 300, "\u2215etc\u2215passwd", "\uff0e\uff0e\uff0fa",
    # Lookalike and invalid text.
    "\u2066a\u2069", "\u200b", "\ufeffa", "e\u0301", "\udfff\ud800", "\x1b]0;x\x07", "\x08\x08", "\U000e0061",
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE)
async def test_value_cannot_leave_its_part_or_field(services: Services, server: Server, value: str) -> None:
    multipart = {"f": "{{ f }}", "named": {"file": "{{ f }}", "name": "{{ v }}"}, "v": "{{ v }}", "end": "fixed"}
    executor = compiled(services, server, {"multipart": multipart})
    written = value.encode(errors="replace")
    content = written + b"\r\n--mcp-gateway-0\r\nContent-Disposition: form-data; name=admin\r\n\r\n1\r\n"
    await sent(executor, f=FileArgument(content, name=value), v=value)
    assert [(name, kind, data) for name, _, kind, data in server.parts] == [
        ("f", "application/octet-stream", content),
        ("named", "application/octet-stream", content),
        ("v", None, written),
        ("end", None, b"fixed"),
    ]
    for _, name, *_ in server.parts[:2]:
        assert name is not None
        assert not set(name) & set('/\\\r\n\0"')
    await sent(compiled(services, server, {"form": {"v": "{{ v }}", "end": "fixed"}}), v=value)
    fields = parse_qsl(server.bodies[-1].decode(), keep_blank_values=True, strict_parsing=True)
    assert fields == [("v", written.decode()), ("end", "fixed")]
    await sent(compiled(services, server, {"body": "{{ v }}, end"}), v=value)
    assert server.bodies[-1] == written + b", end"


@pytest.mark.parametrize(
    "value", ["x", "text/html\r\nX-Admin: 1", 'text/plain; a="b\r\nc"', "a/b/c", "a/b; c", "text/\u00fc"]
)
async def test_malformed_media_type_is_rejected(services: Services, server: Server, value: str) -> None:
    executor = compiled(services, server, {"multipart": {"f": {"file": "{{ f }}", "type": "{{ v }}"}}})
    await sent(executor, f=PHOTO, v='text/plain; charset="utf-8"')
    with pytest.raises(ExecutionError, match="is not a media type"):
        await sent(executor, f=PHOTO, v=value)


@pytest.mark.parametrize(
    "value", ["/etc/passwd", "~/.ssh/id_rsa", ["x"], {"name": "x", "type": "y", "size": 1}, 7, True]
)
async def test_text_value_is_never_sent_as_a_file(services: Services, server: Server, value: Json) -> None:
    executor = compiled(services, server, {"multipart": {"f": {"file": "{{ inputs.v }}"}}, "method": "POST"})
    await sent(executor, v=PHOTO)
    with pytest.raises(ExecutionError, match=r"is not a file\. Use an input with `type: file`"):
        await sent(executor, v=value)


async def test_forms_nest_by_brackets_and_lists_repeat(services: Services, server: Server) -> None:
    form = {"a": "{{ v }}", "l": ["x", "{{ v.k }}"], "o": {"p": [1, {"q": "y"}]}, "f": "{{ f }}"}
    await sent(compiled(services, server, {"form": form}), v={"k": ["s", True], "n": None}, f=FileArgument(b"one"))
    assert parse_qsl(server.bodies[-1].decode()) == [
        ("a[k][0]", "s"), ("a[k][1]", "true"), ("l[0]", "x"), ("l[1][0]", "s"), ("l[1][1]", "true"),
        ("o[p][0]", "1"), ("o[p][1][q]", "y"), ("f", "b25l"),
    ]  # fmt: skip
    repeating = compiled(services, server, {"form": {"a": "{{ v }}"}})
    await sent(repeating, v=["x", None, "y"])
    assert server.bodies[-1] == b"a=x&a=y"
    for value in ({"a][admin": "1"}, {"x": {"[": "1"}}):
        with pytest.raises(ExecutionError, match="contains a bracket"):
            await sent(repeating, v=value)
    with pytest.raises(ExecutionError, match="the form exceeds 16 MiB"):
        await sent(repeating, v={"n" * 100_000: ["x"] * 1000})


async def test_request_key_does_not_depend_on_the_boundary(services: Services, server: Server) -> None:
    executor = compiled(services, server, {"multipart": {"f": "{{ f }}", "v": "{{ v }}"}})
    keys = [
        await executor.cache_key(make_invocation({"f": FileArgument(data, name=name), "v": value}))
        for data, name, value in (
            (b"1", "a", "x"),
            (b"1", "a", "x"),
            (b"2", "a", "x"),
            (b"1", "b", "x"),
            (b"1", "a", "y"),
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


async def test_explanation_shows_parts_without_bytes(services: Services, server: Server) -> None:
    executor = compiled(services, server, {"multipart": {"f": "{{ f }}", "v": "{{ v }}"}})
    body = executor.explain(make_invocation({"f": PHOTO, "v": "x"})).facts["body"]
    assert body == [
        {"field": "f", "name": "lamp.png", "type": "image/png", "size": len(PHOTO.data)},
        {"field": "v", "text": "x"},
    ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"multipart": {"f": {"file": "{{ v }}"}}}, "expected a literal path, or one expression"),
        ({"multipart": {"f": {"file": "/srv/{{ v }}"}}}, "expected a literal path, or one expression"),
        ({"multipart": {"f": "x {{ f }}"}}, "`f` is a file and cannot be inserted into text"),
        ({"headers": {"X-F": "{{ f }}"}}, "`f` is a file and cannot be inserted into text"),
        ({"query": {"f": "{{ f }}"}}, "`f` is a file and cannot be inserted into text"),
        ({"url": "https://a.example/{f}"}, "`f` is a file, which is not allowed in a URI"),
        ({"multipart": {"f": {"file": "{{ f }}", "type": "png"}}}, "expected a media type"),
        ({"multipart": {}, "headers": {"content-type": "x/y"}}, "is set by `multipart`"),
        ({"body": {"file": "/none/gone"}}, "the file `/none/gone` does not exist"),
    ],
)
async def test_file_that_cannot_be_sent_is_reported_at_load(
    services: Services, config: JsonObject, message: str
) -> None:
    inputs = Inputs(schemas={"f": {"type": "file"}, "v": {"type": "string"}}, has_files=True)
    scope = Scope(inputs=inputs, problems=make_scope().problems)
    http = Http.model_validate({"url": "https://a.example/", **config})
    compile_http(http, connections={}, scope=scope, services=services, redactor=Redactor())
    assert [each for each in messages_of(scope) if message in each]
