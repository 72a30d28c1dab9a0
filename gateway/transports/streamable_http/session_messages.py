"""Forwards session messages between replicas.

A client's response goes to the replica that sent the request. The request id contains its name. Cancellations and root
changes go to all replicas that hold the session, unless the request runs here.
"""

from typing import Final

import msgspec

from gateway.errors import StoreUnavailableError
from gateway.json_types import Json
from gateway.protocol.dispatcher import Dispatcher
from gateway.state.redis_sessions import CHANGED, SessionChange
from gateway.state.replica import Replica
from gateway.transports.errors import RETRY, HttpError
from gateway.transports.streamable_http.live_session import LiveSession
from gateway.transports.streamable_http.sessions import Sessions
from gateway.wire import jsonrpc
from gateway.wire.jsonrpc import Batch, Message, Notification, Response

FORWARDED: Final = "session message"
_RECEIVED: Final = b""
_CANCELLED: Final = "notifications/cancelled"
_ROOTS_CHANGED: Final = "notifications/roots/list_changed"


class SessionMessages:
    def __init__(self, sessions: Sessions, replica: Replica, *, dispatcher: Dispatcher) -> None:
        self._sessions: Final = sessions
        self._replica: Final = replica
        self._dispatcher: Final = dispatcher
        replica.mailbox.on(CHANGED, self._take_change)
        replica.mailbox.on(FORWARDED, self._receive)
        replica.sessions.on_return(lambda is_lost: sessions.catch_up(is_lost=is_lost))

    async def forward(self, message: Message, live: LiveSession) -> HttpError | None:
        """Forward messages to other replicas. Return an error if that fails."""
        try:
            for entry in message.entries if isinstance(message, Batch) else (message,):
                match entry:
                    case Response(id=str(request_id)):
                        await self._forward_answer(request_id, entry, live)
                    case Notification() if _is_for_others(entry, live):
                        body = _body(live, {"method": entry.method, "params": entry.params})
                        await self._replica.sessions.tell_holders(live.nonce, FORWARDED, body)
        except StoreUnavailableError as error:
            return HttpError(status=503, message=error.message, headers=RETRY)
        return None

    async def _forward_answer(self, request_id: str, answer: Response, live: LiveSession) -> None:
        begin, _, rest = request_id.partition("-")
        asked_by, _, _ = rest.partition("-")
        # Clients could invent the id, and the name becomes part of a key in the store.
        if request_id in live.session.pending_answers or begin != "gateway" or not asked_by.isalnum():
            return
        outcome = {"result": answer.result} if answer.error is None else {"error": answer.error}
        await self._replica.mailbox.ask(asked_by, FORWARDED, _body(live, {"id": request_id, **outcome}))

    async def _receive(self, body: bytes) -> bytes:
        session_id, encoded = _DECODER.decode(body)
        live = self._sessions.served_here(session_id)
        if live is not None:
            message = self._dispatcher.decode(encoded)
            match message:
                case Response():
                    live.session.take_answer(message)
                case Notification(method="notifications/cancelled"):
                    live.session.in_flight.cancel(message.params.get("requestId"))
                case Notification(method="notifications/roots/list_changed"):
                    self._dispatcher.notifier.roots_changed(live.session.id)
        return _RECEIVED

    async def _take_change(self, body: bytes) -> bytes:
        self._sessions.take_change(_CHANGES.decode(body))
        return _RECEIVED


_DECODER: Final = msgspec.msgpack.Decoder(tuple[str, bytes])
"""The id of the session, and a notification or response of its client as JSON."""
_CHANGES: Final = msgspec.msgpack.Decoder(SessionChange)


def _is_for_others(notification: Notification, live: LiveSession) -> bool:
    if notification.method == _CANCELLED:
        return notification.params.get("requestId") not in live.session.in_flight
    return notification.method == _ROOTS_CHANGED


def _body(live: LiveSession, members: dict[str, Json]) -> bytes:
    message = jsonrpc.encode({"jsonrpc": jsonrpc.VERSION, **members})
    return msgspec.msgpack.encode((live.session.id, message))
