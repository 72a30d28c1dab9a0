"""Pages of the list methods. In: a catalog, a revision and a cursor. Out: the page as bytes, made once."""
