mount_ours() { # Ray's directory, the job's and the log's have the same paths inside
  local folder
  for folder in "$(temp_folder)" "$PWD" "${run%/*}"; do
    [[ $folder != *[,:\;\$\`\"\'\\[:space:]]* ]] || end 79 container-failed "cannot mount $folder in a container" 'run the job in a directory without spaces and special characters'
    [[ $folder == / || ! $folder || " ${mounts[*]} " == *":$folder"[\ :]* ]] || mounts+=("$folder:$folder") # your own mount takes precedence
  done
}
mount_ours
