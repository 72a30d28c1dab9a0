"""Fixtures of the behaviour tests for daemons of these tests."""

from tests.behaviour.conftest import http, newcomer, processes, schemas, url

__all__ = ["http", "newcomer", "processes", "schemas", "url"]
