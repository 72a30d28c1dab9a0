"""Views: named subsets of the catalog, each with a separate endpoint."""

from typing import Annotated

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from gateway.config.models.base import DISTINCT, Flag, Model, NotEmpty, misplaced
from gateway.config.models.definition_keys import Access
from gateway.config.models.field_use import Use


class Selection(Model):
    """Selects tools, resources and prompts that match any of its keys."""

    tags: Annotated[list[NotEmpty], DISTINCT] = []
    """Tags. A definition of any kind that has one of them matches."""
    tools: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of tools: `gh_*`."""
    resources: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names, URIs and URI templates of resources."""
    prompts: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of prompts."""

    @model_validator(mode="after")
    def _says_something(self) -> "Selection":
        if not self.model_fields_set:
            raise PydanticCustomError("nothing_given", "needs at least one of `tags`, `tools`, `resources`, `prompts`")
        return self


class View(Model):
    """A subset of the catalog at `/mcp/<name>`, `/sse/<name>` and `--stdio --view <name>`."""

    include: Selection | None = None
    """Definitions in the view. Kinds that are not listed are empty. Default: everything."""
    exclude: Selection | None = None
    """Definitions to remove from the view even if they are included."""
    instructions: Annotated[str | None, Use.DESCRIPTION] = None
    """Instructions that a model should know before it uses the view. Default: `server.instructions`."""
    access: Access | None = None
    """Who can use the view. Default: everyone. Its definitions still require their own scopes."""
    search: Flag = False
    """List only two tools: `search_tools` finds tools, and `call_tool` calls them. Calls are checked, counted and
    recorded under the real name. Tools can also be called directly, as in any view."""
    always: Annotated[list[NotEmpty], DISTINCT] = []
    """Globs that match names of tools to list in addition to the two of `search`."""

    @model_validator(mode="after")
    def _lists_beside_a_search(self) -> "View":
        if self.always and not self.search:
            raise misplaced("always", goes_with="search")
        return self
