package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// legacy holds the system calls that some architectures lack.
var legacy = map[int32]syscall{
	unix.SYS_FSTATAT:  {"newfstatat", waits.File},
	unix.SYS_RENAMEAT: {"renameat", waits.File},
}
