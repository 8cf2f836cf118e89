"""From a script to a job: submission, dependencies, splitting of large sweeps, differences between specs."""
