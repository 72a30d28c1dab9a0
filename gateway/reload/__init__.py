"""Keeps what is served in step with the files: a watch loop, and a pipeline that loads, compiles, swaps and announces.

In come events of the file system and requests to reload; the configuration and the catalog come from the rooms below.
Out goes one assignment in the `CatalogStore`, or a list of problems in the reloader's status while the last good
catalog is served on.
"""
