"""How a study lives in the database: opened, launched again, archived, imported, and read."""
