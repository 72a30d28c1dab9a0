"""The records that the console shows: calls, rates and reloads, and the feed of events that tells of them. Bounded."""
