"""From a file to a task, proposed: what the file holds, and how it is best cut."""
