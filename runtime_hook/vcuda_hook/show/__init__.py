"""`vcuda ps`, `inspect`, `gpus`, `top`, `events`: what is shown, and how."""
