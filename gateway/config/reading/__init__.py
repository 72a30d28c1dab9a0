"""From the operator's files to one tree: YAML, includes, interpolation, merging; each mistake with its place."""
