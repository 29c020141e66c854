"""The wire's side of the ingestor: convert in, call, convert out."""
