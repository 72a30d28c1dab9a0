"""What a backend brought becomes what a client is shown: shaped, limited, cleaned, masked."""
