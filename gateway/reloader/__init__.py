"""Keep what is served in step with the files: watch, load, compile, swap. The last good catalog stays meanwhile."""
