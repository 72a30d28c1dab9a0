"""Input requests of calls: elicitation, sampling and roots, in both eras."""
