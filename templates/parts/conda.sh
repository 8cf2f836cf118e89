# `conda activate` needs conda's shell function, which a batch shell does not have.
if [[ $(type -t conda) != function ]]; then
  eval "$("${CONDA_EXE:-conda}" shell.bash hook || echo false)" || environment_failed 'conda is not in PATH'
fi
