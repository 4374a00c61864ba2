"""Questions that only hardware can answer; `make gpu` runs them and writes bench/hardware.md."""
