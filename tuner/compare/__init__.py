"""`tuner compare`: variants held against each other by their verification, in a table, sentences, a figure and files.

`subject`   a study to compare, from a database or from an archive
`report`    what can be said: all of it in one, and what is missing for more
`table`     a row for the default and the retuned configuration of each study
`answers`   what the tests found, question by question
`volumes`   hypervolumes below one reference point
`fairness`  what differs between the studies beside their variants
`sentences` answers in words
`files`     the report as CSV and as a page
`terminal`  the report for a terminal
"""

from tuner.compare.report import Report, compare
from tuner.compare.subject import Subject, read_subjects

__all__ = ["Report", "Subject", "compare", "read_subjects"]
