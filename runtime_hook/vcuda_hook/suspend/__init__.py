"""Take containers off their GPUs and bring them back, safe against failures and kills."""
