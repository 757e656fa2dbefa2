"""Read models: what people may ask about jobs, kept in a SQLite file that can be rebuilt from the journal."""
