"""All knowledge of Qdrant: schema, payload, filters, reader and writer. Knows only qdrant-client, over gRPC.

The address may be that of the embedded engine (`services.engine`) or of a Qdrant server >= 1.19.
"""
