"""Searches over people's own functions, and studies of others."""
