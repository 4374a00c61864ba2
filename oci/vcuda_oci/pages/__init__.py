"""The limits and usage pages of a container: their layout, reading and changing them."""
