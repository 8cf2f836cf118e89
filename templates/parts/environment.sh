# Resets what the environment may have changed in this shell. From here on, SIGTERM is recorded.
reset_shell() {
  reset_options
  trap 'slaunch_ended_by=SIGTERM' TERM
  raise_limits
  # Variables of another cluster.
  unset RAY_ADDRESS RAY_AUTH_TOKEN
  # They change what srun prints, and the nodes report through it.
  unset SLURM_LABELIO SLURM_UNBUFFEREDIO SLURM_STDINMODE SLURM_STDOUTMODE SLURM_STDERRMODE
  unset SRUN_INPUT SRUN_OUTPUT SRUN_ERROR
  # Ray's default depends on its version.
  export RAY_AUTH_MODE=${slaunch_auth/off/disabled}
  # Any free port: Ray's fixed ones clash on a shared node.
  export DASHBOARD_METRIC_PORT=0
  export AUTOSCALER_METRIC_PORT=0
  # The workers of a command that `uv run` starts would wait for uv to make an environment for each.
  set_default RAY_ENABLE_UV_RUN_RUNTIME_ENV 0
  #% if not container and not joins
  command -v ray >/dev/null || environment_failed 'ray is not in PATH'
  #% endif
}

# Ray opens many files and starts many threads. Slurm passes on the soft limits of the login node.
raise_limits() {
  ulimit -n hard
  ulimit -u hard
}

# Options of bash that the environment, or a file that every shell reads (BASH_ENV), may have set.
reset_options() {
  set +aCefuvx +o pipefail +o posix
  shopt -u nullglob failglob dotglob nocaseglob nocasematch
  IFS=$' \t\n'
}

# Exports a variable, unless you have set it. A job that is submitted from this one drops it, see
# set_up_exit_and_signals: an address, for example, would not be its own.
# Usage: set_default NAME VALUE
set_default() {
  if [[ ! ${!1-} && $2 ]]; then
    export "$1=$2"
    export SLAUNCH_SET="${SLAUNCH_SET-} $1"
  fi
}
