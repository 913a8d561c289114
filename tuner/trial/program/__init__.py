"""A trial whose training is a program of the user's own: started, heard, stopped, recorded."""
