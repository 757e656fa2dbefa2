"""Read model of a broker: the jobs as users see them, in a SQLite file that the journal can rebuild."""
