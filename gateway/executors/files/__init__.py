"""Resources that are files: globs, and safe reading of regular files."""
