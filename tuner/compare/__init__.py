"""`tuner compare`: variants held against each other by their verification, in a table, sentences, a figure and files.

`subject`   a study to compare, from a database or from an archive
`report`    what can be said: rows, answers, hypervolumes, what is unfair, what is missing
`fairness`  what differs between the studies beside their variants
`sentences` answers in words
`files`     the report as CSV and as a page
`terminal`  the report for a terminal
"""

from tuner.compare.report import Report, compare
from tuner.compare.subject import Subject, read_subjects

__all__ = ["Report", "Subject", "compare", "read_subjects"]
