"""A small wide CSV and its task file, for tests to bend."""

TASK = """\
name = "small"
target_columns = ["a", "b"]
frequency = "h"
input_size = 6
horizon = 2

[source]
kind = "csv"
path = "small.csv"
"""

LONG = TASK.replace('["a", "b"]', '["y"]') + 'id_column = "unique_id"\n'


def csv_lines(rows: int) -> list[str]:
    """Header and `rows` rows: element n - 1 is row n of the file."""
    body = [
        f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00:00,{i % 7}.5,{(i * 3) % 11}"
        for i in range(rows)
    ]
    return ["ds,a,b", *body]


def bent(row: int, text: str) -> list[str]:
    """The small CSV with another row `row` (1 is the header)."""
    lines = csv_lines(60)
    lines[row - 1] = text
    return lines
