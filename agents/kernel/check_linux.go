//go:build amd64 || arm64

package kernel

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// initialPIDs is the inode of the PID namespace that the kernel starts with.
const initialPIDs = "pid:[4026531836]"

// Check returns an error that wraps [ErrMissing] and lists all reasons why [Open] would fail, or nil if it wouldn't.
// The notes describe features that are unavailable because a capability is missing.
func Check() (notes []string, err error) {
	var reasons []string
	held, err := capabilities()
	if err != nil {
		return nil, err
	}
	if missing := missingRights(held); len(missing) > 0 {
		reasons = append(reasons, "without "+strings.Join(missing, " and ")+
			": run as root, or grant it with setcap, systemd's AmbientCapabilities or securityContext.capabilities")
	}
	notes = notesAbout(held)
	if where, err := os.Readlink("/proc/self/ns/pid"); err == nil && where != initialPIDs {
		reasons = append(reasons,
			"this container has process IDs of its own: run it with those of the host (--pid=host, hostPID: true)")
	}
	if mode, err := os.ReadFile("/sys/kernel/security/lockdown"); err == nil &&
		strings.Contains(string(mode), "[confidentiality]") {
		reasons = append(reasons, "the kernel's lockdown mode is confidentiality, which does not let BPF read "+
			"kernel memory")
	}
	if len(reasons) == 0 {
		reasons = append(reasons, missingInKernel()...)
	}
	if len(reasons) > 0 {
		return notes, &MissingError{reasons}
	}
	return notes, nil
}

// missingRights returns the names of the required capabilities that are missing.
func missingRights(held capabilitySet) (names []string) {
	if held.has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	if !held.has(unix.CAP_BPF) {
		names = append(names, "CAP_BPF")
	}
	if !held.has(unix.CAP_PERFMON) {
		names = append(names, "CAP_PERFMON")
	}
	return names
}

// notesAbout returns notes on the consequences of missing optional capabilities.
func notesAbout(held capabilitySet) (notes []string) {
	if !held.has(unix.CAP_SYS_PTRACE) {
		notes = append(notes, "CAP_SYS_PTRACE is missing: the agent cannot find the services and spans of other "+
			"users' processes, so it sends no waits for them, and their stacks have no names")
	}
	if !held.has(unix.CAP_DAC_READ_SEARCH) && !held.has(unix.CAP_DAC_OVERRIDE) {
		notes = append(notes, "CAP_DAC_READ_SEARCH is missing: programs and libraries that this user cannot read "+
			"get no names in stacks, and no spans")
	}
	if !held.has(unix.CAP_SYS_ADMIN) {
		notes = append(notes, "CAP_SYS_ADMIN is missing: the cost of the probes is unknown (0 in JSON), "+
			"and --cpu-limit counts the agent only")
	}
	return notes
}

// missingInKernel returns a list with the first required feature that this kernel lacks, or nil if it lacks nothing.
func missingInKernel() []string {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return []string{
			fmt.Sprintf("the kernel has no type information (BTF): it needs CONFIG_DEBUG_INFO_BTF (%v)", err),
		}
	}
	var hook *btf.Typedef
	if err := spec.TypeByName("btf_trace_sched_switch", &hook); err != nil {
		return []string{"the kernel has no tracepoint sched_switch: it needs CONFIG_TRACEPOINTS and CONFIG_BPF_EVENTS"}
	}
	pointer, _ := hook.Type.(*btf.Pointer)
	if pointer == nil {
		return nil
	}
	proto, ok := pointer.Target.(*btf.FuncProto)
	if ok && len(proto.Params) < 5 { // the first parameter is the tracer's
		return []string{"the kernel is too old: Linux 5.18 or later is needed"}
	}
	return nil
}

// tellsDelay reports whether the kernel records how long threads wait on run queues (CONFIG_SCHED_INFO, enabled in all
// current distributions), like tells_delay in bpf/wait.bpf.c.
func tellsDelay() bool {
	spec, err := btf.LoadKernelSpec()
	return err == nil && hasField(spec, "task_struct", "sched_info") && hasField(spec, "sched_info", "last_queued") &&
		hasField(spec, "sched_entity", "cfs_rq") && hasField(spec, "cfs_rq", "rq")
}

// hasField reports whether the kernel has a C structure with the given name and field.
func hasField(spec *btf.Spec, structure, field string) bool {
	var s *btf.Struct
	if err := spec.TypeByName(structure, &s); err != nil {
		return false
	}
	return slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == field })
}

// explain returns a [MissingError] if err, an error from loading the probes, is due to a missing requirement.
// Otherwise, it wraps err.
func explain(err error) error {
	var verifier *ebpf.VerifierError
	switch {
	case errors.As(err, &verifier):
		return fmt.Errorf("load the probes: the kernel refuses them; "+
			"please report this with the version of the kernel: %w", err)
	case isDenied(err):
		return denied("bpf", err)
	case errors.Is(err, ebpf.ErrNotSupported):
		return &MissingError{[]string{err.Error()}}
	}
	return fmt.Errorf("load the probes: %w", err)
}

func isDenied(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }

// denied returns the error for a system call that is denied although the process has the capabilities for it.
func denied(call string, err error) error {
	return &MissingError{[]string{fmt.Sprintf("the system call %s is denied: by a container's seccomp profile, "+
		"a security module, or on old kernels the limit of locked memory (%v)", call, err)}}
}

// capabilitySet holds the effective capabilities of this process.
type capabilitySet [2]uint32

func (s capabilitySet) has(number int) bool { return s[number/32]&(1<<(number%32)) != 0 }

func capabilities() (capabilitySet, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return capabilitySet{}, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	return capabilitySet{data[0].Effective, data[1].Effective}, nil
}
