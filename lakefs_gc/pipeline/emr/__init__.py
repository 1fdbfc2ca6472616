"""Runs the stages as jobs on EMR through Dagster Pipes: starts the jobs and reads their reports."""
