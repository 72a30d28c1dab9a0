"""Views: named parts of the catalog, each with an endpoint of its own. Checks what is written."""

from typing import Annotated

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import DISTINCT, Flag, Model, NotEmpty, misplaced
from gateway.config.models.definition_keys import Access
from gateway.config.models.field_use import Use


class Selection(Model):
    """A choice among tools, resources and prompts: those that fit any of its keys."""

    tags: Annotated[list[NotEmpty], DISTINCT] = []
    """One of these `tags` of the definition, of whatever kind it is."""
    tools: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs over the names of tools: `gh_*`."""
    resources: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs over the names, URIs and URI templates of resources."""
    prompts: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs over the names of prompts."""

    @model_validator(mode="after")
    def _says_something(self) -> "Selection":
        if not self.model_fields_set:
            raise PydanticCustomError("nothing_given", "needs at least one of `tags`, `tools`, `resources`, `prompts`")
        return self


class View(Model):
    """A part of what is offered, at `/mcp/<name>`, `/sse/<name>` and `--stdio --view <name>`."""

    include: Selection | None = None
    """What belongs to it; kinds that are not named are empty. Without it everything does."""
    exclude: Selection | None = None
    """What does not, although it is included."""
    instructions: Annotated[str | None, Use.DESCRIPTION] = None
    """What a model should know before it uses the view. Default: `server.instructions`."""
    access: Access | None = None
    """Who may use the view; without it everybody. What it holds needs its own scopes nevertheless."""
    search: Flag = False
    """List two tools in place of all: `search_tools` finds others, and `call_tool` calls them. Calls are checked,
    counted and recorded under the real name, which can be called as in any view."""
    always: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs over the names of tools that are listed beside the two of `search`."""

    @model_validator(mode="after")
    def _lists_beside_a_search(self) -> "View":
        if self.always and not self.search:
            raise misplaced("always", goes_with="search")
        return self
