"""Wires the rooms together: start, serve, drain, stop. The one place that may import all of them."""

from gateway.app.checking import check
from gateway.app.gateway import Gateway

__all__ = ["Gateway", "check"]
