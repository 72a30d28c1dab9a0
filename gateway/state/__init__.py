"""Persistent state: the state directory and its database, signing keys, and the store shared by replicas."""
