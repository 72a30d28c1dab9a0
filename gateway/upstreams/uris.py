"""`uri_prefix`: an upstream's URIs as they are here, in everything that names them."""

import msgspec

from gateway.json_types import Json, JsonObject


class PrefixedUris(msgspec.Struct, frozen=True):
    """Puts a prefix before URIs that come from an upstream, and takes it off those that go there."""

    prefix: str = ""

    def ours(self, uri: str) -> str:
        return f"{self.prefix}{uri}"

    def theirs(self, uri: str) -> str:
        return uri.removeprefix(self.prefix)

    def out(self, result: JsonObject) -> JsonObject:
        """A result in which resources and links have our URIs."""
        if not self.prefix:
            return result
        return {name: self._out(value) if name in _HOLDERS else value for name, value in result.items()}

    def _out(self, value: Json) -> Json:
        match value:
            case list():
                return [self._out(each) for each in value]
            case {"type": "resource", "resource": {"uri": str()} as resource}:
                return {**value, "resource": self._out(resource)}
            case {"content": dict() as content}:
                return {**value, "content": self._out(content)}
            case {"uri": str(uri)}:
                return {**value, "uri": self.ours(uri)}
        return value


_HOLDERS = frozenset({"content", "contents", "messages"})
