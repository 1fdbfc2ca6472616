"""The commands with their arguments, options and output. Each imports the module that does its work when it runs."""
