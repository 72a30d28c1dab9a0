"""TLS trust and client certificates, with a real server and certificate authority."""

import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from gateway.config.models.backends import ClientTls, Connection, Http, HttpPages
from gateway.config.models.definition_keys import Output
from gateway.config.secrets.redactor import Redactor
from gateway.errors import ExecutionError
from gateway.executors.http.executor import compile_http
from gateway.executors.invocation import Outcome, RawOutput
from gateway.executors.output.output_store import OutputStore
from gateway.executors.shared_services import Services
from gateway.net.clients import HttpClients
from gateway.net.tls import compile_tls
from gateway.processes.processes import Processes
from gateway.threads import DaemonThreadPool
from tests.executors.recording import make_invocation, make_scope, messages_of
from tests.local_server import listening

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority with certificates for the server and a client."""
    folder = tmp_path_factory.mktemp("tls")
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        *("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2"),
        *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"),
        folder=folder,
    )
    for name, extension in (
        ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "subjectAltName=DNS:client"),
    ):
        openssl(
            *("req", "-x509", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}"),
            *("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2", "-addext", extension),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            folder=folder,
        )
    return folder


@pytest.fixture
async def port(folder: Path) -> AsyncIterator[int]:
    """A server that returns the name of its client."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.verify_mode = ssl.CERT_OPTIONAL

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == "/moved":
            raise web.HTTPFound(f"https://127.0.0.1:{request.url.port}/")
        certificate = request.get_extra_info("peercert")
        name = certificate["subject"][0][0][1] if certificate else "nobody"
        if request.path.startswith("/page"):
            after = {"/page1": f"https://127.0.0.1:{request.url.port}/page2", "/page2": f"{named}/page3"}
            link = {"Link": f'<{after[request.path]}>; rel="next"'} if request.path in after else {}
            return web.json_response([name], headers=link)
        return web.Response(text=name)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    async with listening(application, tls=context) as port:
        named = f"https://localhost:{port}"
        yield port


async def get(
    port: int, folder: Path, tls: ClientTls | None, path: str = "/", pages: HttpPages | None = None
) -> Outcome:
    async with HttpClients() as clients, Processes() as processes, DaemonThreadPool(1) as threads:
        services = Services(processes=processes, http=clients, threads=threads, output_store=OutputStore())
        scope = make_scope(folder=folder)
        connection = Connection(base_url=f"https://localhost:{port}", tls=tls, allow_private=["localhost", "127.0.0.1"])
        executor = compile_http(
            Http(connection="api", url=path, pages=pages),
            connections={"api": connection},
            scope=scope,
            services=services,
            redactor=Redactor(),
            output=Output(),
        )
        assert messages_of(scope) == []
        return await executor.execute(make_invocation())


def said(outcome: Outcome) -> str:
    assert isinstance(outcome, RawOutput)
    return outcome.data.decode()


async def test_unknown_authority_is_not_trusted(port: int, folder: Path) -> None:
    with pytest.raises(ExecutionError, match=r"^The certificate of localhost is not trusted: .*certificate"):
        await get(port, folder, None)


async def test_named_authority_is_trusted(port: int, folder: Path) -> None:
    assert said(await get(port, folder, ClientTls(ca="ca.pem"))) == "nobody"


async def test_client_certificate_is_sent(port: int, folder: Path) -> None:
    tls = ClientTls(ca="ca.pem", cert="client.pem", key="client.key")
    assert said(await get(port, folder, tls)) == "client"


async def test_client_certificate_is_not_sent_to_other_origins(port: int, folder: Path) -> None:
    tls = ClientTls(ca="ca.pem", cert="client.pem", key="client.key")
    assert said(await get(port, folder, tls, "/moved")) == "nobody"
    pages = said(await get(port, folder, tls, "/page1", HttpPages(next="link")))
    assert pages == '["client","nobody","client"]'


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (ClientTls(ca="none.pem"), "cannot read {folder}/none.pem: No such file or directory"),
        (ClientTls(cert="client.pem", key="server.key"), "cert, key cannot be used: KEY_VALUES_MISMATCH"),
        (ClientTls(ca="ca.pem", key="server.key"), "key: requires `cert`"),
        (ClientTls(cert="locked.pem"), "cert cannot be used: "),
    ],
)
def test_mistake_is_a_load_error(folder: Path, tls: ClientTls, message: str) -> None:
    openssl("ec", "-in", "client.key", "-aes128", "-passout", "pass:word", "-out", "locked.key", folder=folder)
    (folder / "locked.pem").write_text((folder / "client.pem").read_text() + (folder / "locked.key").read_text())
    scope = make_scope(folder=folder)
    compile_tls(tls, scope.problems)
    assert len(messages_of(scope)) == 1
    assert messages_of(scope)[0].startswith(message.format(folder=folder))


def test_relative_certificate_paths_give_equal_trust(folder: Path) -> None:
    scope = make_scope(folder=folder)
    first, second = (compile_tls(ClientTls(ca="ca.pem"), scope.problems) for _ in range(2))
    other = compile_tls(ClientTls(ca="server.pem"), scope.problems)
    assert first == second != other


def test_settings_without_files_have_separate_contexts(folder: Path) -> None:
    scope = make_scope(folder=folder)
    first, second = (compile_tls(ClientTls(), scope.problems) for _ in range(2))
    assert first == second
    assert first[0] is first[1] is not None
