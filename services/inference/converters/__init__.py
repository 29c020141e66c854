"""From the formats in which weights are published to the one layout of the model store."""
