"""URI templates (RFC 6570): expansion and matching, in linear time."""
