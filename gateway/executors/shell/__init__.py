"""Shell backends: commands and scripts with their arguments, environment, limits and sandbox."""
