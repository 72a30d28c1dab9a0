"""The configuration: models, loader, secrets, and the settings of the process. Nothing is compiled or run here."""
