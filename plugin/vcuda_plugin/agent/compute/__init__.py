"""GPU time: what each container wants, what it is granted, which ones have too little."""
