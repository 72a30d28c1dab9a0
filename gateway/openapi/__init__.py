"""OpenAPI documents: their operations become tools and resource templates with an HTTP backend.

A document and the options of its entry in the file come in; ordinary definitions go out, as data that could stand in
the YAML file. What serves them and what writes them down take them from the same place.
"""
