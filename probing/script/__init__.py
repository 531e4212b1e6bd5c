"""What a training script may call or raise."""
