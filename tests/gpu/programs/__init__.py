"""Programs that `make gpu` starts on the GPU: in C, and in Python without this project."""
