"""Our networks inside other people's libraries. Each module imports its library, nothing all."""
