"""The retriever: a query in, ranked and explained passages out. Reads the index and the catalogue, writes neither."""
