"""What each verb does, in one sentence: a line of `slurm-launch --help`, and the first line of the verb's own help."""

SUMMARIES = {
    "submit": "Submit a job: write its script and run sbatch (the default).",
    "resubmit": "Resubmit a run, or only its failed tasks.",
    "render": "Print the script of a job; needs no Slurm.",
    "rehearse": "Run a job on this machine with real Ray, without Slurm.",
    "check": "Check the script of a job without submitting it.",
    "list": "List runs, the newest first.",
    "status": "Show the state of a run.",
    "watch": "Watch a run until it ends; exit with its command's code.",
    "logs": "Show the log of a run, or the logs of its nodes.",
    "explain": "Explain why a run failed and what to do.",
    "cancel": "Cancel runs; their commands get time to save.",
    "attach": "Open a shell or run a command inside a running job.",
    "dashboard": "Show how to reach the Ray dashboard of a running job.",
    "grow": "Add nodes to the Ray cluster of a run.",
    "doctor": "Check the cluster and write its profile.",
    "config": "Show, locate and create configuration files.",
}


def help_text(verb: str, details: str = "") -> str:
    """The help of a verb: its summary, and a paragraph of details."""
    return f"{SUMMARIES[verb]}\n\n{details}" if details else SUMMARIES[verb]
