package server

import "golang.org/x/sys/unix"

// fileLimits is the number of files that each part of the process may have open.
type fileLimits struct {
	database int // each of the two databases
	agents   int // connections of agents and of clients of the API
	others   int // connections to each other address; senders need few
}

// File descriptors are budgeted so that a client opening many connections cannot starve the databases, and agents,
// which hold a long poll each, cannot starve senders of traces.
const (
	mostReserved   = 2048   // files of databases and of the rest of the process; at most half of all
	needed         = 48     // of these, for the rest of the process
	mostOthers     = 1024   // connections to an address without agents
	othersShare    = 16     // one in 16 connections, if that is fewer
	otherAddresses = 4      // of the receivers and of remote sampling
	mostAgents     = 24_000 // because connections also take memory; control takes fewer agents
)

// ownFileLimits divides the number of files that the process may open. Go has already raised the limit as far as
// possible.
func ownFileLimits() fileLimits {
	const usual = 1024
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		all.Cur = usual
	}
	return divideFiles(all.Cur)
}

// divideFiles divides a number of files.
func divideFiles(all uint64) fileLimits {
	all = min(all, mostReserved+mostAgents+otherAddresses*mostOthers)
	reserved := min(all/2, mostReserved)
	others := min((all-reserved)/othersShare, mostOthers)
	return fileLimits{
		database: int(max(reserved, needed)-needed) / 2,
		agents:   int(all - reserved - otherAddresses*others),
		others:   int(others),
	}
}
