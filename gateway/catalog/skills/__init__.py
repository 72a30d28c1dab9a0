"""Skills: directories with a SKILL.md (SEP-2640), read as they are at one moment.

In come the entries of `skills:`; out go the skills, each with its front matter, its files and their digests, and the
problems of each SKILL.md at their lines.
"""
