"""What people see in a terminal: tables of results, studies live, one trial in full."""
