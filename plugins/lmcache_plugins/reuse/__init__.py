"""Built-in plugin ``reuse``: follows a sample of the chunks that prompts ask for."""
