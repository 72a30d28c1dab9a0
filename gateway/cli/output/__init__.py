"""The output of commands. In: results and other values. Out: lines for people, or JSON for programs."""
