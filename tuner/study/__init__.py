"""Studies: what one is (its file), what identifies it (its definition), and how it lives in the database."""

from tuner.study.definition import StudyDefinition
from tuner.study.files import StudyFile, builtin_variants, load_study_file, studies_folder
from tuner.study.opened import OpenStudy, check_resumable, create_or_resume, list_studies, open_study
from tuner.study.policy import SearchPolicy

__all__ = [
    "OpenStudy",
    "SearchPolicy",
    "StudyDefinition",
    "StudyFile",
    "builtin_variants",
    "check_resumable",
    "create_or_resume",
    "list_studies",
    "load_study_file",
    "open_study",
    "studies_folder",
]
