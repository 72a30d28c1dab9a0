"""Templates with Jinja syntax. Errors are reported when the configuration is loaded. Rendering has a budget."""
