"""A small training job that really trains, saves and resumes; `manifest` makes the Job that runs it."""
