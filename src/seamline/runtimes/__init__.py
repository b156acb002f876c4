"""What serves a trained model, one file each."""
