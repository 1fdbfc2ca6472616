"""What fails, at each call of a run: it ends right or refuses, and the next one ends right."""
