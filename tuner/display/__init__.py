"""What a person is shown: strangers' text made harmless, and the one terminal."""
