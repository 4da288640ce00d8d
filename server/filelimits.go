package server

import "golang.org/x/sys/unix"

// fileLimits holds the maximum number of open files for each part of the process.
type fileLimits struct {
	database int // each of the two databases
	agents   int // connections of agents and of clients of the API
	others   int // connections to each other address; senders need few
}

// File descriptors are budgeted so that a client opening many connections cannot starve the databases, and agents,
// which hold a long poll each, cannot starve senders of traces.
const (
	mostReserved   = 2048   // maximum files for the databases and the rest of the process; half of all, if that is less
	needed         = 48     // how many of them the rest of the process needs
	mostOthers     = 1024   // maximum connections to an address without agents
	othersShare    = 16     // such an address gets at most one in othersShare connections
	otherAddresses = 4      // addresses of the receivers and of remote sampling
	mostAgents     = 24_000 // maximum connections of agents and API clients; control admits fewer, to save memory
)

// ownFileLimits divides the files that the process may open among its parts. Go has already raised the limit as far as
// possible.
func ownFileLimits() fileLimits {
	const usual = 1024
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		all.Cur = usual
	}
	return divideFiles(all.Cur)
}

// divideFiles divides all files among the parts of the process.
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
