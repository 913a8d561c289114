#!/bin/sh
# Hands the database password over in the environment of this one process: it stands in no URL, on no command line and
# not in what `docker inspect` shows.
set -eu
secret=${TUNER_PASSWORD_FILE:-}
if [ -n "$secret" ]; then
  if [ ! -r "$secret" ]; then
    echo "tuner: error: cannot read the database password in $secret; storage/README.md says how to make it" >&2
    exit 1
  fi
  PGPASSWORD=$(cat "$secret")
  export PGPASSWORD
fi
exec tuner "$@"
