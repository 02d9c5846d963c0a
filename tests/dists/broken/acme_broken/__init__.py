"""Each module is a plugin with one fault, named by its file."""
