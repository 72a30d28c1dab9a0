"""Templates with Jinja's syntax over JSON values, checked at load and rendered within a budget."""
