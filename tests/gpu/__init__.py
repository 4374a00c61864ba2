"""What only hardware can answer: `make gpu` asks it and writes bench/hardware.md."""
