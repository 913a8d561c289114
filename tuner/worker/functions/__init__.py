"""Functions of people's own: a search over one, and anybody's finished study confirmed."""
