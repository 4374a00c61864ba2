"""What a bundle says of its container: identity, request, environment, root file system."""
