image_env=() worker_image_env=() # loads the image's own variables, if it has any
[[ ! -e $image/ch/environment ]] || image_env=(--set-env)
[[ ! -e ${worker_image-$image}/ch/environment ]] || worker_image_env=(--set-env)
