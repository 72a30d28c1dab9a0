"""The model of an entry of `skills`: directories with a SKILL.md (SEP-2640)."""

from typing import Annotated, Final

from gateway.config.models.base import DISTINCT, Model, NotEmpty, text_for
from gateway.config.models.definition_keys import Access
from gateway.config.models.field_use import Use


class SkillDirectories(Model):
    """Directories that each contain a skill: a SKILL.md and the files that it refers to."""

    dir: NotEmpty
    """A directory, or a glob of directories, relative to this file. Each directory must have the name of its skill."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Tags for grouping and rules."""
    access: Access | None = None
    """Who can read them. Default: everyone."""


Skills = Annotated[SkillDirectories, text_for("dir")]
"""An entry of `skills`. Plain text is the glob."""

SKILL_FILE: Final = "SKILL.md"
"""The file that makes a directory a skill."""
