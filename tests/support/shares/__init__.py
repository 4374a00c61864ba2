"""The judge of shares: loads in containers on a software GPU, in virtual time."""
