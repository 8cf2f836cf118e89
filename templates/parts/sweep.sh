[[ ${SLURM_ARRAY_TASK_ID-} ]] || end 77 script-failed 'a sweep needs a task number' "submit it as an array: sbatch --array=0-$((${#points[@]} - 1)) SCRIPT"
point=${points[SLURM_ARRAY_TASK_ID]-} && [[ $point ]] || end 77 script-failed "the sweep has no point $SLURM_ARRAY_TASK_ID" "its points are 0 to $((${#points[@]} - 1))"
command="export $point; $command" && say point number="$SLURM_ARRAY_TASK_ID" "$point" # for the command's shell only: a key may have the name of one of our variables
