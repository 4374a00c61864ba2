"""The DRA driver: this node's GPUs as ResourceSlices, and claims prepared for the kubelet."""
