"""Wires the rooms together: start, serve, drain, stop. The one place that may import all of them."""

from gateway.app.developing import CallBegan, CallEnded, Glance, Happening, Reloaded, develop
from gateway.app.gateway import Gateway
from gateway.app.reference import reference
from gateway.app.rehearsal.checking import check
from gateway.app.rehearsal.explaining import Explained, explain
from gateway.app.rehearsal.locking import Comparison, compare_lock, write_lock
from gateway.app.rehearsal.planning import Plan, Sign, plan
from gateway.app.rehearsal.prerequisites import Prerequisites, prerequisites_of
from gateway.app.rehearsal.rehearsal import picture_of
from gateway.app.rehearsal.testing import Grade, Verdict, run_tests
from gateway.app.reports.picture import Picture

__all__ = [
    "CallBegan",
    "CallEnded",
    "Comparison",
    "Explained",
    "Gateway",
    "Glance",
    "Grade",
    "Happening",
    "Picture",
    "Plan",
    "Prerequisites",
    "Reloaded",
    "Sign",
    "Verdict",
    "check",
    "compare_lock",
    "develop",
    "explain",
    "picture_of",
    "plan",
    "prerequisites_of",
    "reference",
    "run_tests",
    "write_lock",
]
