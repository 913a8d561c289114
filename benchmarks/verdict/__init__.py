"""What a verdict says, held against truths that are known."""
