"""The gRPC services of text-embeddings-inference (`tei.v1`) over our models, for its clients to switch to."""
