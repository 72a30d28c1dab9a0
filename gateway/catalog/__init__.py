"""The catalog: the immutable set of primitives that is served, and everything that makes one.

In come a loaded configuration, a lock file and the code of plugins. Out goes a `Catalog` of primitives ready to run, or
every problem at once; the `CatalogStore` holds the one that is served now.
"""
