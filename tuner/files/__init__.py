"""Files: what others wrote, read within limits; what is ours, whole or absent; a user's folders."""
