# Gives the command the values of this task's point. They are exported in the command's own shell
# only: a key may have the name of a variable of this script.
choose_point() {
  local last=$((${#slaunch_points[@]} - 1))
  local point
  [[ ${SLURM_ARRAY_TASK_ID-} ]] ||
    finish 77 script-failed 'a sweep needs a task number' \
      "submit it as an array: sbatch --array=0-$last SCRIPT"
  point=${slaunch_points[SLURM_ARRAY_TASK_ID]-}
  [[ $point ]] ||
    finish 77 script-failed "the sweep has no point $SLURM_ARRAY_TASK_ID" \
      "its points are 0 to $last"
  slaunch_command="export $point; $slaunch_command"
  say point number="$SLURM_ARRAY_TASK_ID" "$point"
}
