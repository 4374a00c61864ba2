"""What starts cost: of containers through the wrapper, and of many processes at once."""
