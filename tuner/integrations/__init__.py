"""Our networks inside other people's libraries. Each module imports its library; nothing here imports them all."""
