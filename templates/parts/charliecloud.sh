# Sets the options that load the image's own variables, if it has any.
set_up_charliecloud() {
  slaunch_image_env=()
  if [[ -e $slaunch_image/ch/environment ]]; then
    slaunch_image_env=(--set-env)
  fi
  #% if container.worker_image != container.image
  slaunch_worker_image_env=()
  if [[ -e $slaunch_worker_image/ch/environment ]]; then
    slaunch_worker_image_env=(--set-env)
  fi
  #% endif
}
