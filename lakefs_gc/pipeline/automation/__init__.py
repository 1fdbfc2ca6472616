"""What starts runs, and what follows them: the sensors, and the schedule."""
