"""Files: what others wrote, read within limits; what is ours, there whole or not at all; and where
a user keeps it.
"""
