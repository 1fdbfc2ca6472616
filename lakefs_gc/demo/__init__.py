"""The demo: a repository with a story, collected before one's eyes."""
