"""What people see in a terminal: tables of results, studies live, one trial in full."""

from tuner.view.live import Live, live_view
from tuner.view.tables import print_status, print_summary
from tuner.view.trial import print_trial

__all__ = ["Live", "live_view", "print_status", "print_summary", "print_trial"]
