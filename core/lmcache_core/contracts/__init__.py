"""What a plugin implements or hands over. Imports nothing of this project but the errors."""
