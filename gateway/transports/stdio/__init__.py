"""Standard input and output as a binding: taken from everybody else, read and written in lines."""
