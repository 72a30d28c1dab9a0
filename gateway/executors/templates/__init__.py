"""Templates in the file: Jinja's notation over JSON values, checked when the file is read."""
