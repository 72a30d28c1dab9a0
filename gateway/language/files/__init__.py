"""Inputs of `type: file`: their schema for clients, and decoding."""
