package kernel

import (
	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// legacy holds the system calls that newer architectures lack.
var legacy = map[int32]syscall{
	unix.SYS_OPEN:       {"open", waits.File},
	unix.SYS_CREAT:      {"creat", waits.File},
	unix.SYS_STAT:       {"stat", waits.File},
	unix.SYS_LSTAT:      {"lstat", waits.File},
	unix.SYS_NEWFSTATAT: {"newfstatat", waits.File},
	unix.SYS_ACCESS:     {"access", waits.File},
	unix.SYS_UNLINK:     {"unlink", waits.File},
	unix.SYS_RENAME:     {"rename", waits.File},
	unix.SYS_RENAMEAT:   {"renameat", waits.File},
	unix.SYS_MKDIR:      {"mkdir", waits.File},
	unix.SYS_RMDIR:      {"rmdir", waits.File},
	unix.SYS_LINK:       {"link", waits.File},
	unix.SYS_SYMLINK:    {"symlink", waits.File},
	unix.SYS_READLINK:   {"readlink", waits.File},
	unix.SYS_CHMOD:      {"chmod", waits.File},
	unix.SYS_CHOWN:      {"chown", waits.File},
	unix.SYS_LCHOWN:     {"lchown", waits.File},
	unix.SYS_MKNOD:      {"mknod", waits.File},
	unix.SYS_UTIME:      {"utime", waits.File},
	unix.SYS_UTIMES:     {"utimes", waits.File},
	unix.SYS_GETDENTS:   {"getdents", byFirstFD},

	unix.SYS_EPOLL_WAIT: {"epoll_wait", waits.Epoll},
	unix.SYS_POLL:       {"poll", byPolledFD},
	unix.SYS_SELECT:     {"select", waits.Poll},
	unix.SYS_PAUSE:      {"pause", waits.Sleep},
	unix.SYS_FORK:       {"fork", waits.Child},
	unix.SYS_VFORK:      {"vfork", waits.Child},
}
