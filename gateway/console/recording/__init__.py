"""The records that the console shows: calls, rates and reloads. In memory, bounded, and none without a console."""
