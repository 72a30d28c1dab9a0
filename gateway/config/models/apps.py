"""The model of `app`: the page that hosts show for a tool's result (SEP-1865, MCP Apps)."""

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.models.base import DISTINCT, Flag, Model, NotEmpty, matching
from gateway.config.models.field_use import Use

Origin = Annotated[
    str,
    matching(
        r"(https?|wss?)://(\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*(:[0-9]{1,5})?",
        "an origin such as https://api.example.com or https://*.example.com",
    ),
]


class ContentSecurityPolicy(Model):
    """Origins that the page can contact, besides its host. Default: none."""

    connect: Annotated[list[Origin], Use.SHOWN] = []
    """Origins that scripts can send requests to."""
    resources: Annotated[list[Origin], Use.SHOWN] = []
    """Origins from which scripts, styles, images, fonts and media can be loaded."""


class App(Model):
    """A page that hosts show next to the tool's result. Hosts without support for pages show the text."""

    file: NotEmpty
    """The page: a single HTML file. The path is relative to this file. It is read on each request."""
    csp: ContentSecurityPolicy | None = None
    """The origins that the page can contact."""
    permissions: Annotated[list[Literal["camera", "microphone", "geolocation", "clipboardWrite"]], DISTINCT] = []
    """Browser permissions that the page requests. The host decides."""
    visibility: Annotated[list[Literal["model", "app"]], Field(min_length=1), DISTINCT] = ["model", "app"]
    """Who can call the tool: the model, the page, or both. Hosts enforce this."""
    border: Flag | None = None
    """Whether the host should draw a border around the page. By default the host decides."""
