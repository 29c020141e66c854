"""The Pergamon server distribution: four gRPC services and the layers beneath them."""
