"""What is on offer right now: primitives ready to run, compiled from the configuration and swapped as a whole."""
