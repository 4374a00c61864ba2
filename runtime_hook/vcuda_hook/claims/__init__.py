"""ResourceClaims of the DRA driver as amounts of GPUs: names, parsing, and what is free. Pure."""
