"""Templates, URI templates and JSON Schemas of the configuration, compiled to run in bounded time."""
