"""The methods of the protocol. Handlers return a mapping or encoded bytes."""
