"""The `sql` backend. In: an invocation. Out: the rows of a query, or how many rows a statement changed.

The text of a statement is the operator's, and values are bound: `tokens` finds the parameters, `query` compiles the
statements, `input_types` converts arguments. `pools` holds the connections, of which `sqlite`, `postgresql` and
`other_databases` each know one kind; `rows` turns what a database returns into JSON, within the limits.
"""
