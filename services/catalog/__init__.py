"""What the product remembers: knowledge bases, documents, their versions, and the jobs that make them (SQLite or PostgreSQL)."""
