"""What a workload needs of a GPU, from samples of what it held, used and waited for: pure."""
