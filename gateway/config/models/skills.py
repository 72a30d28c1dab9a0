"""The model of an entry of `skills`: directories with a SKILL.md (SEP-2640)."""

from typing import Annotated, Final

from gateway.config.models.base import DISTINCT, Model, NotEmpty, text_for
from gateway.config.models.definition_keys import Access
from gateway.config.models.field_use import Use


class SkillDirectories(Model):
    """Directories that each hold a skill: a SKILL.md, and the files that it speaks of."""

    dir: NotEmpty
    """A directory, or a glob of directories, relative to this file. Each is called like the skill in it."""
    tags: Annotated[list[str], DISTINCT, Use.SHOWN] = []
    """Words for grouping and rules."""
    access: Access | None = None
    """Who may read them; without this everybody."""


Skills = Annotated[SkillDirectories, text_for("dir")]
"""An entry of `skills`; text alone is the glob."""

SKILL_FILE: Final = "SKILL.md"
"""The file that makes a directory a skill."""
