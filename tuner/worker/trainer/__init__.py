"""The process that trains for a worker on a GPU: it knows torch and the device, no database."""
