"""The stages as jobs on EMR, by Dagster Pipes: started and read here, run and reported there."""
