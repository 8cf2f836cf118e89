[[ ! -e $image/ch/environment ]] || image_env=(--set-env) # the image's own variables
