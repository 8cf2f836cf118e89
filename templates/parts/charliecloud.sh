image_env=() worker_image_env=() # the image's own variables, where ch-run can have them from
[[ ! -e $image/ch/environment ]] || image_env=(--set-env)
[[ ! -e ${worker_image-$image}/ch/environment ]] || worker_image_env=(--set-env)
