"""What other retention rules would free, and what each branch holds. Deletes nothing, and is not an input of a mark."""
