package server

import "golang.org/x/sys/unix"

// fileLimits holds the maximum number of open files for each part of the process.
type fileLimits struct {
	database int // files of each of the two databases of a tenant
	agents   int // connections of agents and of clients of the API
	others   int // connections to each of the other listeners; senders need few
}

// File descriptors are budgeted so that a client opening many connections cannot starve the databases, and agents,
// which hold a long poll each, cannot starve senders of traces.
const (
	leastDatabase = 74 // minimum number of files that a database opens, regardless of its limit
	// mostReserved is the maximum number of files for the databases and the rest of the process, unless the databases
	// need more. The number is also at most half of all files.
	mostReserved   = 2048
	needed         = 48     // number of the reserved files that the rest of the process needs
	mostOthers     = 1024   // maximum connections to a listener without agents
	othersShare    = 16     // such a listener gets at most 1/othersShare of the connections
	otherAddresses = 4      // listeners of the receivers and of remote sampling
	mostAgents     = 24_000 // maximum connections of agents and API clients; control admits fewer, to save memory
)

// ownFileLimits divides the files that the process may open among its parts, for the given number of tenants. Go has
// already raised the limit as far as possible.
func ownFileLimits(tenants int) fileLimits {
	const usual = 1024
	var all unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &all); err != nil {
		all.Cur = usual
	}
	return divideFiles(all.Cur, tenants)
}

// divideFiles divides all files among the parts of the process, for the given number of tenants.
func divideFiles(all uint64, tenants int) fileLimits {
	most := max(mostReserved, needed+2*leastDatabase*uint64(tenants))
	all = min(all, most+mostAgents+otherAddresses*mostOthers)
	reserved := min(all/2, most)
	others := min((all-reserved)/othersShare, mostOthers)
	return fileLimits{
		database: int(max(reserved, needed)-needed) / 2 / tenants,
		agents:   int(all - reserved - otherAddresses*others),
		others:   int(others),
	}
}
