"""Standard input and output as a binding: taken from everything else in the process, read and written in lines."""
