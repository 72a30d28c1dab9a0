"""Resources that are files: what globs match under a directory, and safe reading of regular files.

A path or a URI's path comes in; bytes with a media type go out, and nothing from outside the root.
"""
