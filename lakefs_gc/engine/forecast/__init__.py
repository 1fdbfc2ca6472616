"""What other retention rules would free, and what each branch holds. Deletes nothing, and is no input of a mark."""
