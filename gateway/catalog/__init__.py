"""The catalog of served tools, resources and prompts, with its compiler and its store."""
