"""`vcuda demo`: two containers on one GPU."""
