"""The configuration: models, loader, secrets, and process settings."""
