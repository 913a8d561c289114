"""What forecasts by libraries come to. They are installed in an environment of their own: `make
test-libraries` makes it, and runs these there.
"""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("statsforecast") and find_spec("chronos") else ["test_*.py"]
