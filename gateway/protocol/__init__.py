"""Implements both eras of the Model Context Protocol, legacy (with sessions) and modern (without sessions). No I/O."""
