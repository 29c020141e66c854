"""What the product remembers: knowledge bases, documents, their versions, and jobs, in SQLite or PostgreSQL."""
