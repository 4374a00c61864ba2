"""Names of containers, by their engines and pods, and which containers a typed name means."""
