"""Measurements: a folder for each question, and `shared` for what their scripts have in common."""
