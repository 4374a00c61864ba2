"""GPU time: what each container wants, what it is granted, who has too little."""
