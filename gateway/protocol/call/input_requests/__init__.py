"""Requests to clients during calls. In: elicitation, sampling, roots. Out: checked answers, or a retry."""
