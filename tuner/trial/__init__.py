"""One trial on one device: the job, its runs over seeds, and the data they train on."""
