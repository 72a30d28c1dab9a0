"""What the operator wrote: models of the file, the loader that reads it, and the process's own settings."""
