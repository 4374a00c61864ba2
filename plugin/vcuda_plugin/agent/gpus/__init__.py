"""The node's GPUs: found, watched for faults, named in labels."""
