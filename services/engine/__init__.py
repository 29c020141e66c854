"""The embedded vector engine: the part of Qdrant's gRPC protocol that is used here, over qdrant-edge, as a process."""
