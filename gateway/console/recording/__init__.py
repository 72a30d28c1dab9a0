"""Bounded records of calls, rates and reloads, and the event feed."""
