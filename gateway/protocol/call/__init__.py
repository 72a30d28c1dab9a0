"""The run of one call. In: a primitive and its arguments. Out: its outcome; its context and observers meanwhile."""
