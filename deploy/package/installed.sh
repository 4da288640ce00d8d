#!/bin/sh
# Runs after installation. It does not start the service: systemctl enable --now sibyl.
set -e
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart sibyl.service
fi
