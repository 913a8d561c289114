"""A worker: a process that owns one device and pulls work from its studies until there is none."""
