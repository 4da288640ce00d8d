//go:build amd64 || arm64

package kernel

import (
	"maps"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sibyl-trace/sibyl/agents/kernel/waits"
)

// Kinds of system calls whose class depends on an argument, as in bpf/wait.bpf.c.
const (
	byFirstFD  waits.Class = 32
	byPolledFD waits.Class = 33
)

// syscall is a system call that threads may wait in.
type syscall struct {
	name string
	kind waits.Class
}

// syscalls holds the known system calls by number. All others belong to the class other.
var syscalls = func() map[int32]syscall {
	all := maps.Clone(everywhere)
	maps.Copy(all, legacy)
	return all
}()

// SyscallName returns the name of a system call for people, or "" for NoSyscall.
func SyscallName(nr int32) string {
	if nr < 0 {
		return ""
	}
	if s, ok := syscalls[nr]; ok {
		return s.name
	}
	return "syscall " + strconv.Itoa(int(nr))
}

// everywhere holds the system calls that all architectures have.
var everywhere = map[int32]syscall{
	unix.SYS_READ:            {"read", byFirstFD},
	unix.SYS_WRITE:           {"write", byFirstFD},
	unix.SYS_READV:           {"readv", byFirstFD},
	unix.SYS_WRITEV:          {"writev", byFirstFD},
	unix.SYS_PREAD64:         {"pread64", byFirstFD},
	unix.SYS_PWRITE64:        {"pwrite64", byFirstFD},
	unix.SYS_PREADV:          {"preadv", byFirstFD},
	unix.SYS_PWRITEV:         {"pwritev", byFirstFD},
	unix.SYS_PREADV2:         {"preadv2", byFirstFD},
	unix.SYS_PWRITEV2:        {"pwritev2", byFirstFD},
	unix.SYS_SENDFILE:        {"sendfile", byFirstFD},
	unix.SYS_SPLICE:          {"splice", byFirstFD},
	unix.SYS_TEE:             {"tee", byFirstFD},
	unix.SYS_VMSPLICE:        {"vmsplice", byFirstFD},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", byFirstFD},
	unix.SYS_IOCTL:           {"ioctl", byFirstFD},
	unix.SYS_FALLOCATE:       {"fallocate", byFirstFD},
	unix.SYS_FTRUNCATE:       {"ftruncate", byFirstFD},
	unix.SYS_FADVISE64:       {"fadvise64", byFirstFD},
	unix.SYS_READAHEAD:       {"readahead", byFirstFD},
	unix.SYS_GETDENTS64:      {"getdents64", byFirstFD},
	unix.SYS_FSTAT:           {"fstat", byFirstFD},
	unix.SYS_LSEEK:           {"lseek", byFirstFD},
	unix.SYS_ACCEPT:          {"accept", byFirstFD},
	unix.SYS_ACCEPT4:         {"accept4", byFirstFD},
	unix.SYS_CONNECT:         {"connect", byFirstFD},
	unix.SYS_SENDTO:          {"sendto", byFirstFD},
	unix.SYS_SENDMSG:         {"sendmsg", byFirstFD},
	unix.SYS_SENDMMSG:        {"sendmmsg", byFirstFD},
	unix.SYS_RECVFROM:        {"recvfrom", byFirstFD},
	unix.SYS_RECVMSG:         {"recvmsg", byFirstFD},
	unix.SYS_RECVMMSG:        {"recvmmsg", byFirstFD},
	unix.SYS_SHUTDOWN:        {"shutdown", byFirstFD},

	unix.SYS_OPENAT:     {"openat", waits.File},
	unix.SYS_OPENAT2:    {"openat2", waits.File},
	unix.SYS_CLOSE:      {"close", waits.File},
	unix.SYS_STATX:      {"statx", waits.File},
	unix.SYS_STATFS:     {"statfs", waits.File},
	unix.SYS_FACCESSAT:  {"faccessat", waits.File},
	unix.SYS_FACCESSAT2: {"faccessat2", waits.File},
	unix.SYS_UNLINKAT:   {"unlinkat", waits.File},
	unix.SYS_RENAMEAT2:  {"renameat2", waits.File},
	unix.SYS_MKDIRAT:    {"mkdirat", waits.File},
	unix.SYS_LINKAT:     {"linkat", waits.File},
	unix.SYS_SYMLINKAT:  {"symlinkat", waits.File},
	unix.SYS_READLINKAT: {"readlinkat", waits.File},
	unix.SYS_FCHMODAT:   {"fchmodat", waits.File},
	unix.SYS_FCHOWNAT:   {"fchownat", waits.File},
	unix.SYS_UTIMENSAT:  {"utimensat", waits.File},
	unix.SYS_TRUNCATE:   {"truncate", waits.File},
	unix.SYS_GETXATTR:   {"getxattr", waits.File},
	unix.SYS_SETXATTR:   {"setxattr", waits.File},
	unix.SYS_LGETXATTR:  {"lgetxattr", waits.File},
	unix.SYS_LSETXATTR:  {"lsetxattr", waits.File},
	unix.SYS_LISTXATTR:  {"listxattr", waits.File},
	unix.SYS_LLISTXATTR: {"llistxattr", waits.File},

	unix.SYS_REMOVEXATTR:       {"removexattr", waits.File},
	unix.SYS_LREMOVEXATTR:      {"lremovexattr", waits.File},
	unix.SYS_INOTIFY_ADD_WATCH: {"inotify_add_watch", waits.File},

	unix.SYS_FCHMODAT2: {"fchmodat2", waits.File},
	unix.SYS_MKNODAT:   {"mknodat", waits.File},
	unix.SYS_CHDIR:     {"chdir", waits.File},
	unix.SYS_EXECVE:    {"execve", waits.File},
	unix.SYS_EXECVEAT:  {"execveat", waits.File},
	unix.SYS_IO_SUBMIT: {"io_submit", waits.File},

	unix.SYS_FSYNC:           {"fsync", waits.Sync},
	unix.SYS_FDATASYNC:       {"fdatasync", waits.Sync},
	unix.SYS_SYNC:            {"sync", waits.Sync},
	unix.SYS_SYNCFS:          {"syncfs", waits.Sync},
	unix.SYS_SYNC_FILE_RANGE: {"sync_file_range", waits.Sync},
	unix.SYS_MSYNC:           {"msync", waits.Sync},

	unix.SYS_EPOLL_PWAIT:  {"epoll_pwait", waits.Epoll},
	unix.SYS_EPOLL_PWAIT2: {"epoll_pwait2", waits.Epoll},
	unix.SYS_PPOLL:        {"ppoll", byPolledFD},
	unix.SYS_PSELECT6:     {"pselect6", waits.Poll},

	unix.SYS_FUTEX:       {"futex", waits.Futex},
	unix.SYS_FLOCK:       {"flock", waits.Futex},
	unix.SYS_FCNTL:       {"fcntl", waits.Futex}, // for locks of files; its other commands hardly ever wait
	unix.SYS_SEMOP:       {"semop", waits.Futex},
	unix.SYS_SEMTIMEDOP:  {"semtimedop", waits.Futex},
	unix.SYS_FUTEX_WAITV: {"futex_waitv", waits.Futex},
	futexWait:            {"futex_wait", waits.Futex},

	unix.SYS_NANOSLEEP:       {"nanosleep", waits.Sleep},
	unix.SYS_CLOCK_NANOSLEEP: {"clock_nanosleep", waits.Sleep},
	unix.SYS_RT_SIGSUSPEND:   {"rt_sigsuspend", waits.Sleep},
	unix.SYS_RT_SIGTIMEDWAIT: {"rt_sigtimedwait", waits.Sleep},
	unix.SYS_RESTART_SYSCALL: {"restart_syscall", waits.Sleep},

	unix.SYS_IO_URING_ENTER: {"io_uring_enter", waits.IOUring},
	unix.SYS_IO_GETEVENTS:   {"io_getevents", waits.File},
	unix.SYS_IO_PGETEVENTS:  {"io_pgetevents", waits.File},

	unix.SYS_WAIT4:  {"wait4", waits.Child},
	unix.SYS_WAITID: {"waitid", waits.Child},
	unix.SYS_CLONE:  {"clone", waits.Child},  // for vfork, returns after the child's execve
	unix.SYS_CLONE3: {"clone3", waits.Child}, // the same

	unix.SYS_MMAP:            {"mmap", waits.Other},
	unix.SYS_MUNMAP:          {"munmap", waits.Other},
	unix.SYS_MREMAP:          {"mremap", waits.Other},
	unix.SYS_MPROTECT:        {"mprotect", waits.Other},
	unix.SYS_MADVISE:         {"madvise", waits.Other},
	unix.SYS_BRK:             {"brk", waits.Other},
	unix.SYS_MSGRCV:          {"msgrcv", waits.Other},
	unix.SYS_MSGSND:          {"msgsnd", waits.Other},
	unix.SYS_MQ_TIMEDRECEIVE: {"mq_timedreceive", waits.Other},
	unix.SYS_MQ_TIMEDSEND:    {"mq_timedsend", waits.Other},
	unix.SYS_MEMBARRIER:      {"membarrier", waits.Other},
	unix.SYS_SCHED_YIELD:     {"sched_yield", waits.RunQueue},
	unix.SYS_EXIT_GROUP:      {"exit_group", waits.Other},
	unix.SYS_BPF:             {"bpf", waits.Other},
	unix.SYS_PERF_EVENT_OPEN: {"perf_event_open", waits.Other},
}

// futexWait is the number of futex_wait on all architectures; package unix lacks it.
const futexWait = 455
