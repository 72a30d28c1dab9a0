"""Skills: directories with a SKILL.md (SEP-2640), read as snapshots."""
