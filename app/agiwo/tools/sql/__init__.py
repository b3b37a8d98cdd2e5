"""Reading databases for `database.query`: bound statements, what Postgres and SQLite answer, and its form as JSON."""
