#!/bin/sh
# Runs before removal, and before an upgrade, which needs no stop: dpkg passes "upgrade", rpm 1.
set -e
case "$1" in upgrade | 1) exit 0 ;; esac
if [ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ]; then
  systemctl disable --now sibyl.service
fi
