"""The schema's history, one file a step, applied by `services.catalog.migrate`."""
