package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/units"
	"github.com/sibyl-trace/sibyl/server"
)

// checkAddresses checks that the service listens on the addresses in c if it is running, or that they are free if it
// isn't.
func checkAddresses(ctx context.Context, c *config.Config, running bool) (all []finding) {
	for _, l := range c.Listeners() {
		if l.Address == "" {
			continue
		}
		f := finding{Check: l.Key, State: fine}
		switch err := tryListen(ctx, l.Address); {
		case err == nil && running:
			f.State, f.Saw = warning, fmt.Sprintf("Nothing listens at %s, although a service runs.", l.Address)
			f.Do = "Run sibyl doctor with the flags, the environment and the configuration file of the service."
		case err == nil:
			f.Saw = l.Address + " is free."
		case errors.Is(err, syscall.EADDRINUSE) && running:
			f.Saw = "A program listens at " + l.Address + "."
		case errors.Is(err, syscall.EADDRINUSE):
			f.State, f.Saw = failed, fmt.Sprintf("Another program listens at %s.", l.Address)
			f.Do = fmt.Sprintf("Stop it, or choose another address with %s.", flagOf(l))
		default:
			f.State, f.Saw, f.Do = failed, err.Error(), fmt.Sprintf("Choose another address with %s.", flagOf(l))
		}
		all = append(all, f)
	}
	return all
}

// tryListen listens on address, stops listening at once, and returns the error, if any.
func tryListen(ctx context.Context, address string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// checkData checks the data directory and its disk.
func checkData(c *config.Config) []finding {
	dir, err := existing(c.DataDir)
	if err := cmp.Or(server.CheckDataDir(c.DataDir), err); err != nil {
		return []finding{{Check: "data", State: failed, Saw: err.Error(), Do: "Choose " + usableDataDir + "."}}
	}
	data := finding{Check: "data", State: fine, Saw: fmt.Sprintf("%s can be written.", c.DataDir)}
	if dir != filepath.Clean(c.DataDir) {
		data.Saw = fmt.Sprintf("%s does not exist yet and can be created.", c.DataDir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		data.State, data.Saw = failed, fmt.Sprintf("%s cannot be written: %v.", dir, err)
		data.Do = "Change its owner, or choose another directory with --data-dir."
	}
	return []finding{data, checkDisk(dir, c)}
}

// existing returns dir if it exists, or the nearest existing directory above it. It returns an error if the path found
// is a file or can't be read.
func existing(dir string) (string, error) {
	for dir = filepath.Clean(dir); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return "", fmt.Errorf("%s is not a directory", dir)
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			return dir, err
		}
	}
}

// leastFree is the free space in bytes below which a disk fails the check.
const leastFree = 1 << 30

// checkDisk compares the free space on the disk that holds dir with the maximum size of the data under c.
func checkDisk(dir string, c *config.Config) finding {
	f := finding{Check: "disk", State: fine}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return finding{Check: "disk", State: skipped, Saw: (&os.PathError{Op: "statfs", Path: dir, Err: err}).Error()}
	}
	free, most := int64(s.Bavail)*s.Bsize, c.Journal.MaxBytes+c.Retention.Bytes
	f.Saw = fmt.Sprintf("%s are free; journal and stored data take at most %s.",
		units.Bytes(rounded(free)), units.Bytes(most))
	switch {
	case free < leastFree:
		f.State = failed
	case free < most:
		f.State = warning
	default:
		return f
	}
	f.Do = "Free space, or lower --journal-max-bytes or --retention-bytes. Sibyl accepts no traces on a full disk."
	return f
}

// rounded returns bytes rounded down to whole GiB, or to whole MiB if bytes is less than 1 GiB.
func rounded(bytes int64) int64 {
	if bytes >= 1<<30 {
		return bytes >> 30 << 30
	}
	return bytes >> 20 << 20
}

// checkClock checks whether the clock of this machine is synchronized, by asking the kernel.
func checkClock() finding {
	f := finding{Check: "clock", State: fine, Saw: "The clock of this machine is synchronized."}
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	switch {
	case err != nil:
		return finding{
			Check: "clock",
			State: skipped,
			Saw:   fmt.Sprintf("Cannot find out whether the clock is synchronized: %v.", err),
		}
	case state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0:
		f.State, f.Saw = warning, "The clock of this machine may not be synchronized: the kernel does not know."
		f.Do = "Synchronize the clocks of all machines with NTP, for example with chrony: Sibyl corrects differences " +
			"within a trace, but not the times of onsets and deploys. A container may be unable to tell."
	default:
		f.Saw = fmt.Sprintf("The clock of this machine is synchronized, to %s.",
			units.Duration(time.Duration(t.Esterror)*time.Microsecond))
	}
	return f
}

// usefulFiles is the minimum limit on open files that keeps databases and connections from competing for them.
const usefulFiles = 8192

// checkFiles checks the number of files that a process may open.
func checkFiles() finding {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return finding{Check: "files", State: skipped, Saw: fmt.Sprintf("The limit of open files is unknown: %v.", err)}
	}
	f := finding{
		Check: "files",
		State: fine,
		Saw:   fmt.Sprintf("A process may open %s files.", units.Count(int(min(limit.Max, 1<<31)))),
	}
	if limit.Max < usefulFiles {
		f.State = warning
		f.Do = fmt.Sprintf("Raise the hard limit to %d or more (LimitNOFILE in systemd, ulimit -Hn in a shell): "+
			"it bounds the connections of agents and senders.", usefulFiles)
	}
	return f
}
