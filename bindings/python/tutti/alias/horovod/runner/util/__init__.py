"""Helpers for threads."""
