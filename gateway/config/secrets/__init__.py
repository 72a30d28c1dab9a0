"""Detection and masking of secrets.

In come the secret values of one load, and text that is about to leave the daemon. Out goes the text with every secret
masked, in whatever encoding it stands. Nothing is read from disk here.
"""
