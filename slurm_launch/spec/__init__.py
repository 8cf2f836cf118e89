"""What can be requested: the model with every option, the checks of values, conflicts, container runtimes, worker
groups, sweep points. Pure.
"""
