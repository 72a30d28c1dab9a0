"""Inputs of `type: file`: the schema for clients, and decoding."""
