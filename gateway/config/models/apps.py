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
    """Origins that the page may reach beyond its host; without any it reaches none."""

    connect: Annotated[list[Origin], Use.SHOWN] = []
    """Origins that its scripts may send requests to."""
    resources: Annotated[list[Origin], Use.SHOWN] = []
    """Origins that scripts, styles, images, fonts and media may come from."""


class App(Model):
    """A page that hosts show beside the tool's result. The text stays for hosts that show none."""

    file: NotEmpty
    """The page, HTML in one file; path relative to this file. It is read at each request."""
    csp: ContentSecurityPolicy | None = None
    """The origins that the page may reach."""
    permissions: Annotated[list[Literal["camera", "microphone", "geolocation", "clipboardWrite"]], DISTINCT] = []
    """What the page asks the browser for; the host decides."""
    visibility: Annotated[list[Literal["model", "app"]], Field(min_length=1), DISTINCT] = ["model", "app"]
    """Who may call the tool: the model, the page, or both. Hosts hold to it."""
    border: Flag | None = None
    """Whether the host should draw a border around it; otherwise the host decides."""
