"""The ingestor: documents in, indexed knowledge out, through durable jobs."""
