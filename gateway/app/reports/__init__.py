"""What is told of the daemon while it serves: its status, numbers, clients and offer, and the audit log."""
