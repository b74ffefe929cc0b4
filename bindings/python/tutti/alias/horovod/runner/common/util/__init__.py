"""Helpers about the launcher's environment."""
