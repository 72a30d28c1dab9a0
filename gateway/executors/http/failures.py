"""What went wrong on the way to a server, in words for the model. Never a URL, a header or a traceback."""

import json
import os
from collections.abc import Callable
from typing import Final

import aiohttp

from gateway.errors import ExecutionError
from gateway.executors.http.address_guard import AddressRefusedError


class ConnectionFailedError(ExecutionError):
    """No answer came back; trying again may help."""


def explained(error: Exception, *, host: str) -> ExecutionError:
    """Turn what the client library raised into the error of the call."""
    refused = error if isinstance(error, AddressRefusedError) else getattr(error, "os_error", None)
    if isinstance(refused, AddressRefusedError):
        return ExecutionError(
            f"`{host}` has {refused.kind}, to which no connection is made. The operator can allow it: "
            f"{permission_for(host)}, or `true` for every address, in the tool's `http` or in its connection"
        )
    for kind, explain in _EXPLANATIONS:
        if isinstance(error, kind):
            return explain(error, host)
    return ConnectionFailedError(f"The request to {host} failed ({type(error).__name__})")


def permission_for(host: str) -> str:
    """What the file has to say; in YAML a colon wants quotes."""
    return f"`allow_private: [{json.dumps(host) if ':' in host else host}]`"


def _certificate(error: aiohttp.ClientConnectorCertificateError, host: str) -> ExecutionError:
    reason = getattr(error.certificate_error, "verify_message", "") or "certificate verify failed"
    return ExecutionError(f"The certificate of {host} is not trusted: {reason}")


def _tls(error: aiohttp.ClientConnectorSSLError, host: str) -> ExecutionError:
    reason = getattr(error.os_error, "reason", None) or "handshake failed"
    return ConnectionFailedError(f"No TLS connection with {host}: {str(reason).replace('_', ' ').lower()}")


def _proxy(error: aiohttp.ClientProxyConnectionError, _host: str) -> ExecutionError:
    return ConnectionFailedError(f"The proxy cannot be reached: {_system_text(error.os_error)}")


def _proxy_answer(error: aiohttp.ClientHttpProxyError, host: str) -> ExecutionError:
    return ConnectionFailedError(f"The proxy does not connect to {host}: it answered {error.status}")


def _connect(error: aiohttp.ClientConnectorError, host: str) -> ExecutionError:
    return ConnectionFailedError(f"Cannot connect to {host}:{error.port}: {_system_text(error.os_error)}")


def _url(_error: aiohttp.InvalidURL, host: str) -> ExecutionError:
    return ExecutionError(f"{host} is not a host that can be connected to")


def _system_text(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else "no connection"


def _saying(text: str) -> Callable[[Exception, str], ExecutionError]:
    """Explains with one text, whatever else is known; `{}` stands for the host."""
    return lambda _error, host: ConnectionFailedError(text.format(host))


_EXPLANATIONS: Final[tuple[tuple[type[Exception], Callable[..., ExecutionError]], ...]] = (
    (aiohttp.ClientConnectorDNSError, _saying("The host {} cannot be found")),
    (aiohttp.ClientConnectorCertificateError, _certificate),
    (aiohttp.ClientConnectorSSLError, _tls),
    (aiohttp.ClientProxyConnectionError, _proxy),
    (aiohttp.ClientHttpProxyError, _proxy_answer),
    (aiohttp.ClientConnectorError, _connect),
    (aiohttp.InvalidURL, _url),
    (aiohttp.ClientPayloadError, _saying("The answer of {} broke off, or is not encoded as it says")),
    (aiohttp.ClientConnectionError, _saying("{} closed the connection before it answered")),
    (aiohttp.ClientResponseError, _saying("The answer of {} is not HTTP as it should be")),
)
"""The first that fits; more special ones stand before those that they derive from."""
