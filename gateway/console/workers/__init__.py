"""The console of a daemon with several workers: each answers for itself, and the one that is asked merges all."""
