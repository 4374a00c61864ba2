"""Take containers off their GPUs and bring them back, whatever fails or is killed."""
