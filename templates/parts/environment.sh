# Resets what the environment may have changed in this shell.
reset_shell() {
  IFS=$' \t\n'
  # Ray opens many files.
  ulimit -n hard
  # Variables of another cluster.
  unset RAY_ADDRESS RAY_AUTH_TOKEN
  # Ray's default depends on its version.
  export RAY_AUTH_MODE=${slaunch_auth/off/disabled}
  # Any free port: Ray's fixed ones clash on a shared node.
  export DASHBOARD_METRIC_PORT=0
  export AUTOSCALER_METRIC_PORT=0
  #% if not container and not joins
  command -v ray >/dev/null || environment_failed 'ray is not in PATH'
  #% endif
}
