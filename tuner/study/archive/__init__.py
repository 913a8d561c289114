"""A study in one file, to read without a database.

`content`     what is exported of a study
`json_form`   the same as plain data, as JSON has it
`json_schema` every field with its type and range
`file`        compact, versioned JSON, written and read
"""

from tuner.study.archive.content import Archive, archive_of
from tuner.study.archive.file import is_archive_name, read_archive, write_archive

__all__ = ["Archive", "archive_of", "is_archive_name", "read_archive", "write_archive"]
