"""Variants held against each other by their verification: rows, answers, and sentences."""
