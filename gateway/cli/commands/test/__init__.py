"""The command `test`: runs the tests that tools define."""
