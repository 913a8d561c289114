"""Our networks inside other people's libraries. Each module imports one library."""
