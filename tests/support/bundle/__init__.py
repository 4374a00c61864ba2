"""What containers are made of: root file systems, images, config.json, traps in images."""
