"""What scripts of several folders use."""
