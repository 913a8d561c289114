"""How a study lives in the database: opened, launched again, archived, copied, and read."""
