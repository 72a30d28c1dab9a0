"""What the daemon tells its operators about itself."""
