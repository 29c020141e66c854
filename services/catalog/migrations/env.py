"""Run by alembic: migrate over the connection, and inside the transaction, that the program has opened."""

from alembic import context

from services.catalog.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
