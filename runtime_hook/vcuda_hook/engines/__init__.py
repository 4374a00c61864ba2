"""`vcuda configure`: engines' configuration files, read, edited and put back."""
