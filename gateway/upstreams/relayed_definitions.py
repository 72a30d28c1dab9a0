"""The definitions of primitives that another server carries out: models with the wire form that it gave them.

Not written in any file, so they are built and not validated; `catalog.compile` treats them like the file's own.
"""

from typing import Any

from gateway.config.models.definitions import Prompt, Resource, Tool


class RelayedTool(Tool):
    """A tool of another server."""

    upstream: Any

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedResource(Resource):
    """A resource or resource template of another server."""

    upstream: Any

    @property
    def backend(self) -> str:
        return "upstream"


class RelayedPrompt(Prompt):
    """A prompt of another server."""

    upstream: Any

    @property
    def backend(self) -> str:
        return "upstream"
