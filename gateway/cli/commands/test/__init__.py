"""The command `test`: runs the tests that tools define. In: a file. Out: a verdict for each test."""
