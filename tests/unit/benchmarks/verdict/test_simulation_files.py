"""The file that simulated searches are kept in."""

import subprocess
import sys
from pathlib import Path

from benchmarks.verdict.simulation_files import kept, searches_in
from tests.support.paths import REPOSITORY


def test_a_search_is_in_the_file_before_it_is_handed_on_and_a_cut_line_is_no_search(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "searches.jsonl"
    assert searches_in(cache) == []
    cache.write_text('{"truth":"a","seed":0}\n{"truth":"a","se')
    ended = kept(({"truth": "é", "seed": seed} for seed in (1, 2)), cache)
    next(ended)
    assert [one["seed"] for one in searches_in(cache)] == [0, 1]
    assert [one["seed"] for one in ended] == [2]
    assert searches_in(cache)[-1] == {"truth": "é", "seed": 2}


SCRIPTS = (
    "samplers/samplers.py",
    "verdict/confirmed_steps.py",
    "verdict/others.py",
    "verdict/warm_starts.py",
)


def test_a_process_takes_one_core() -> None:
    """Whoever imports numpy before it is said gets as many threads as there are cores."""
    code = "import sys\n"
    for script in SCRIPTS:
        path = REPOSITORY / "benchmarks" / script
        source = path.read_text(encoding="utf-8")
        before = source[: source.index("one_core_each()  #")]
        code += f"exec({before!r}, {{'__file__': {str(path)!r}, '__name__': 'script'}})\n"
        code += f"print({script!r}, 'numpy' in sys.modules)\n"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert found.splitlines() == [f"{script} False" for script in SCRIPTS]
