//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The reason for every wait of targeted threads, without intercepting system calls: when a thread leaves its CPU, its
// saved registers name the system call that it is in and the first argument, mostly a file descriptor.
//
// The time of a thread is divided without gaps: on a CPU (oncpu), runnable (preempted, runqueue), and waiting for
// something (all other classes) until a wake-up. Sums of time are kept per process, thread, class and system call.
// Each thread's state is written only by the CPU that switches it, so nothing here takes a lock. The iterator, which
// begins the state of a thread that has not been switched yet, may lose a race with that: then repair mends it.
#include "kernel.h"

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

// The kernel offers the helpers used here only to programs with a license that is compatible with its own.
char LICENSE[] SEC("license") = "Dual BSD/GPL";

// Classes, as in agents/kernel/waits/class.go.
enum class {
	ONCPU,
	PREEMPTED,
	RUNQUEUE,
	FILE_,
	SYNC,
	FAULT,
	NET,
	DNS,
	UNIX,
	PIPE,
	EPOLL,
	POLL,
	FUTEX,
	SLEEP,
	IOURING,
	CHILD,
	TTY,
	OTHER,
	CLASSES,
	ENDED = 255, // state of a thread that has exited
};

// Kinds of system calls, beyond those whose class does not depend on arguments: those are the class itself.
enum {
	BY_FIRST_FD = 32, // the class of the file descriptor that is the first argument
	BY_POLLED_FD,	  // poll, but dns if the first descriptor polled is a resolver's
};

enum {
	NO_SYSCALL = -1,
	MAX_SYSCALLS = 512,
	BUCKETS = 28,		// of histograms
	FIRST_BUCKET_BITS = 10, // the first holds waits below 2^10 ns
	MAX_FRAMES = 127,
	FILTER_BITS = 1 << 16,
	RATES = 1 << 14,
	SETTLED_BITS = 2,      // a quarter of the threshold
	TOLD_AS_WELL_BITS = 3, // an eighth of the threshold; as in agents/kernel/waits/part.go
	RATE_WINDOW_BITS = 30, // a window of the event rate: 2^30 ns
};

// Flags of targets.
enum {
	WITH_STACKS = 1,
	WITH_CHILDREN = 2,
	// Events and stacks without span are not sent, short waits within a span are sent as sums, and stacks not summed up.
	ONLY_IN_SPANS = 4,
};

// Why an event is missing, as in agents/kernel/waits/record.go.
enum {
	LOST,	    // the ring buffer was full
	LIMITED,    // above the rate of the process
	UNKNOWN,    // memory of the process was not in place, so that its span is unknown
	CRAMPED,    // short waits that have no room in their span beside the other waits
};

// How the span that a thread works for is found, as in agents/kernel/join.
enum {
	NO_CONTEXT,
	GO_LABELS,     // labels of the goroutine: trace_id and span_id
	THREAD_RECORD, // otel_thread_ctx_v1, OTEP 4947
	THREAD_TABLE,  // of Sibyl's JVM agent
};

// What has been found, as in agents/kernel/waits/record.go.
enum {
	NOT_SOUGHT,
	HEX,    // a span, as hexadecimal digits
	BINARY, // a span
	NO_GOROUTINE,
	NO_SPAN,
	UNREADABLE,
	UNSAMPLED, // a span that is not exported
};

enum {
	MAX_LABELS = 16,
	TRACE_DIGITS = 32,
	SPAN_DIGITS = 16,
	RECORD_SIZE = 28, // of a thread record without attributes
	CLOCK_TICK_NS = 10000000, // the unit in which /proc tells times
	MAX_NAMESPACES = 32,
};

// context locates the span that a thread of a process works for. Offsets are in bytes.
struct context {
	__u32 kind;
	__s32 tls;    // of the pointer to the goroutine or to the record, from the thread pointer
	__u16 m;      // in a goroutine, of its thread
	__u16 curg;   // in Go's thread, of the goroutine that it runs
	__u16 labels; // in a goroutine
	__u16 unused;
	__u64 table;  // address of the table of threads
	__u32 slots;  // of the table
	__u32 unused2;
};

struct target {
	__u64 begun;   // time (all in ns of the monotonic clock) from which on the process is observed in this way
	__u64 added;   // when it became a target
	__u32 classes; // bit mask: sums are kept
	__u32 events;  // bit mask: waits above the threshold are sent
	__u32 flags;
	__u32 max_events; // in each window
	struct context context;
	__u64 threshold_ns[CLASSES]; // 0: none
};

// rate counts the events of a process in a window of time.
struct rate {
	__u64 window;
	__u32 sent;
	__u32 unused;
};

struct sum {
	__u64 count;
	__u64 total_ns;
	__u64 max_ns;
	__u64 runq_ns; // from the wake-ups to the CPU
	__u64 max_runq_ns;
	__u64 last; // time of the last change
	__u32 over;
	__u32 runq_over;
	__u8 comm[16];
	__u32 buckets[BUCKETS];
};

// brief sums up waits of a class that are too short for events of their own.
struct brief {
	__u64 ns;
	__u32 count;
	__s32 syscall; // of the last one
};

// thread is the state of a thread. The fields of every switch come first.
struct thread {
	__u64 since; // begin of the present state; 0: unknown
	__u64 woken; // 0: still waiting, or the scheduler tells; see delay_of
	__u64 ran;   // as the scheduler counts the time on CPUs, when the thread left its last one
	__u64 delay; // as the scheduler counts the time on run queues, when the thread left its last CPU
	__s32 stack; // of the present wait; negative: none
	__s32 syscall;
	__u32 class;	      // present state
	__u32 found;	      // of the present wait: its span
	__u64 generation;     // of targets, that of the copy
	struct target target; // a copy: a switch needs no look at the map
	struct sum on_cpu;    // until the thread ends, when it goes to the other sums
	__u64 stack_at;
	__u64 span;		  // hash of that of the last wait in any
	__u64 free;		  // in that span, events tell nothing from this time on
	__u64 gap;		  // nor from this time to gap_end; the longest such time before free
	__u64 gap_end;
	__u64 until;		  // end of the last wait in that span
	__u32 pending;		  // classes with short waits in that span that no event has told
	__u32 pending_found;	  // how the span was found
	__u64 unsampled[CLASSES]; // short waits since the last one with a stack
	struct brief brief[CLASSES];
	__u8 span_text[TRACE_DIGITS + SPAN_DIGITS];    // of the present wait
	__u8 pending_text[TRACE_DIGITS + SPAN_DIGITS]; // of the pending ones
};

struct sum_key {
	__u32 tgid;
	__u32 tid;
	__s32 syscall;
	__u32 class;
};

struct stack_key {
	__u32 tgid;
	__s32 stack;
	__s32 syscall;
	__u32 class;
};

struct stack_sum {
	__u64 count;
	__u64 total_ns;
};

// missing_key identifies events that are missing.
struct missing_key {
	__u32 tgid;
	__u32 class;
	__u32 reason;
};

// missed sums up events that are missing.
struct missed {
	__u64 count;
	__u64 total_ns;
};

// event reports a wait above the threshold, or the sum of shorter ones.
struct event {
	__u64 end;
	__u64 wait_ns;
	__u64 runq_ns;
	__u32 tgid;
	__u32 tid;
	__s32 syscall;
	__u32 class;
	__s32 stack;
	__u16 found;
	__u16 more; // waits that this one stands for, beside itself
	__u8 comm[16];
	__u8 trace[TRACE_DIGITS];
	__u8 span[SPAN_DIGITS];
};

// interval is a part of a thread's time.
struct interval {
	__u32 class;
	__s32 syscall;
	__u64 wait_ns;
	__u64 runq_ns; // after the wake-up
	__u64 end;
	bool over;	// it exceeds the threshold of its class
	bool runq_over; // its run-queue part exceeds that of runqueue
	bool told;	// an event tells the wait
	bool runq_told; // an event tells its run-queue part
	__u16 more;	// see event
};

// open is the present state of a thread.
struct open {
	__u64 now;
	__u64 since;
	__u64 woken;
	__u32 tgid;
	__u32 tid;
	__s32 syscall;
	__u32 class;
	__u8 comm[16];
};

// The loader reads the types of these from the object.
struct event *unused_event __attribute__((unused));
struct open *unused_open __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct sum_key);
	__type(value, struct sum);
} sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct stack_key);
	__type(value, struct stack_sum);
} stack_sums SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 8192);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_FRAMES * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct missing_key);
	__type(value, struct missed);
} missing SEC(".maps");

// Set before loading.
volatile const __u8 kinds[MAX_SYSCALLS];
volatile const __u64 stack_period_ns = 1000000; // at most one stack of a thread in this time
volatile const __u64 sample_period_ns = 1;	// of the CPU clock

// Set at any time: nothing is observed from this time on. The agent renews it, so that one that hangs observes nothing.
volatile __u64 until;

// Set when stacks have been deleted: identities of stacks that were taken before this time may be those of others now.
volatile __u64 forgotten;

// Processes that may be targets, a bit each by the end of their number: all others need no look at the map. The agent
// writes the first. forked writes one of the others, whose bits stay set when a target ends; now and then the agent names
// the processes that still run, clears the one that forked does not write, and has it write that.
volatile __u64 named[FILTER_BITS / 64];
volatile __u64 inherited_even[FILTER_BITS / 64];
volatile __u64 inherited_odd[FILTER_BITS / 64];
volatile __u32 rotations;

// The name of programs that become targets when they start, and what targets they become. Empty: none do.
volatile __u8 wanted_comm[16];
struct target wanted_target;

struct rate rates[RATES]; // of processes, by the end of their number: a few may share one

__u64 changes; // of targets by these programs: the agent looks at them again

// Numbers of changes of targets after which threads need new copies: those by the agent, which are applied as soon as it
// has counted them, and those by these programs.
volatile __u64 applied = 1;
volatile __u64 outdated;

// Losses, by reason.
__u64 lost_events;    // the ring buffer was full
__u64 limited_events; // above the rate of the process: not sent
__u64 lost_sums;      // the map was full: an interval is missing in the sums
__u64 lost_threads;   // no memory for the state of a thread: its time is missing in the sums
__u64 lost_stacks;
__u64 lost_targets; // children that are not observed
__u64 lost_missing; // missing events that the map of missing ones does not tell, since it was full
__u64 lost_switches; // from a CPU that the kernel did not report: the time until the next one is missing
__u64 unseen_switches; // to a CPU that the kernel did not report: the scheduler's times stand in

static const struct sum empty_sum;
static const struct stack_sum empty_stack_sum;

#define increment(counter) __sync_fetch_and_add(&(counter), 1)

// may_be_target reports whether process tgid may be a target: false for nearly all others.
static __always_inline bool may_be_target(__u32 tgid)
{
	__u32 word = tgid % FILTER_BITS / 64;

	return (named[word] | inherited_even[word] | inherited_odd[word]) >> (tgid % 64) & 1;
}

// observed_at reports whether target is observed at a time.
static __always_inline bool observed_at(struct target *target, __u64 now)
{
	return now >= target->begun && now < until;
}

// target_now returns the target that process tgid is now; 0 if it is none.
static __always_inline struct target *target_now(__u32 tgid)
{
	struct target *target;

	if (!may_be_target(tgid))
		return 0;
	target = bpf_map_lookup_elem(&targets, &tgid);
	return target && observed_at(target, bpf_ktime_get_ns()) ? target : 0;
}

// tells_delay reports whether the kernel keeps the times that delay_of reads. Otherwise woken is attached.
static __always_inline bool tells_delay(void)
{
	return bpf_core_field_exists(struct task_struct, sched_info) && bpf_core_field_exists(struct sched_info, last_queued) &&
	       bpf_core_field_exists(struct sched_entity, cfs_rq) && bpf_core_field_exists(struct cfs_rq, rq);
}

// delay_of returns the time for which task has been on run queues since its creation, with the present time.
static __always_inline __u64 delay_of(struct task_struct *task)
{
	__u64 queued, clock;

	if (!tells_delay())
		return 0;
	queued = task->sched_info.last_queued;
	if (!queued)
		return task->sched_info.run_delay;
	clock = task->se.cfs_rq->rq->clock; // of the task's CPU, which the scheduler has just updated
	return task->sched_info.run_delay + (clock > queued ? clock - queued : 0);
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 bits = 0;

#pragma unroll
	for (__u32 step = 32; step; step >>= 1) {
		if (ns >> step) {
			ns >>= step;
			bits += step;
		}
	}
	if (bits < FIRST_BUCKET_BITS)
		return 0;
	bits -= FIRST_BUCKET_BITS - 1;
	return bits < BUCKETS ? bits : BUCKETS - 1;
}

static __always_inline bool exceeds(struct target *target, __u32 class, __u64 ns)
{
	return class < CLASSES && target->threshold_ns[class] && ns >= target->threshold_ns[class];
}

static __always_inline bool wants(struct target *target, __u32 class) { return target->events & (1 << class); }

static __always_inline void copy_comm(__u8 *to, struct task_struct *task)
{
	const __u64 *from = (const __u64 *)task->comm;

	((__u64 *)to)[0] = from[0];
	((__u64 *)to)[1] = from[1];
}

// grow adds an interval to a sum.
static __always_inline void grow(struct sum *sum, struct interval *i)
{
	__u32 bucket = bucket_of(i->wait_ns);

	sum->count++;
	sum->total_ns += i->wait_ns;
	if (i->wait_ns > sum->max_ns)
		sum->max_ns = i->wait_ns;
	sum->runq_ns += i->runq_ns;
	if (i->runq_ns > sum->max_runq_ns)
		sum->max_runq_ns = i->runq_ns;
	sum->last = i->end;
	sum->over += i->over;
	sum->runq_over += i->runq_over;
	if (bucket < BUCKETS)
		sum->buckets[bucket]++;
}

// add adds an interval to the sums.
static __always_inline void add(struct target *target, struct task_struct *task, struct interval *i)
{
	struct sum_key key = {.tgid = task->tgid, .tid = task->pid, .syscall = i->syscall, .class = i->class};
	struct sum *sum;

	if (i->class >= CLASSES || !(target->classes & (1 << i->class)))
		return;
	sum = bpf_map_lookup_elem(&sums, &key);
	if (!sum) {
		bpf_map_update_elem(&sums, &key, &empty_sum, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&sums, &key);
		if (!sum) {
			increment(lost_sums);
			return;
		}
		copy_comm(sum->comm, task);
	}
	grow(sum, i);
}

// add_on_cpu adds the time on the CPU that ends. Its sum is kept with the thread, where it is found at once.
static __always_inline void add_on_cpu(struct thread *t, __u64 now)
{
	struct interval i = {.class = ONCPU, .syscall = NO_SYSCALL, .wait_ns = now - t->since, .end = now};

	i.over = exceeds(&t->target, ONCPU, i.wait_ns);
	if (t->since >= t->target.begun && (t->target.classes & (1 << ONCPU)))
		grow(&t->on_cpu, &i);
}

static __always_inline void add_stack(__u32 tgid, __u32 class, __s32 syscall, __s32 stack, __u64 ns)
{
	struct stack_key key = {.tgid = tgid, .stack = stack, .syscall = syscall, .class = class};
	struct stack_sum *sum = bpf_map_lookup_elem(&stack_sums, &key);

	if (!sum) {
		bpf_map_update_elem(&stack_sums, &key, &empty_stack_sum, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&stack_sums, &key);
		if (!sum) {
			increment(lost_stacks);
			return;
		}
	}
	__sync_fetch_and_add(&sum->count, 1);
	__sync_fetch_and_add(&sum->total_ns, ns);
}

// Since Linux 6.2: makes a number a pointer that can be read directly, many times faster than by a helper.
extern void *bpf_rdonly_cast(const void *, __u32) __ksym __weak;

#define readable(type, address) ((struct type *)bpf_rdonly_cast((const void *)(address), bpf_core_type_id_kernel(struct type)))

static __always_inline struct file *file_of(struct fdtable *table, __u64 fd)
{
	struct file *file = 0;

	if (bpf_rdonly_cast)
		return (struct file *)readable(list_head, table->fd + fd)->next; // any structure that begins with a pointer
	bpf_probe_read_kernel(&file, sizeof(file), table->fd + fd);
	return file;
}

static __always_inline __u32 mode_of(struct file *file)
{
	if (bpf_rdonly_cast)
		return readable(file, file)->f_inode->i_mode;
	return BPF_CORE_READ(file, f_inode, i_mode);
}

static __always_inline struct sock *sock_of(struct file *file)
{
	struct socket *socket;

	if (bpf_rdonly_cast)
		return readable(socket, readable(file, file)->private_data)->sk;
	socket = BPF_CORE_READ(file, private_data);
	return BPF_CORE_READ(socket, sk);
}

static __always_inline __u32 class_of_socket(struct file *file)
{
	struct sock *sk = sock_of(file);
	__u16 family = bpf_rdonly_cast ? readable(sock, sk)->__sk_common.skc_family : BPF_CORE_READ(sk, __sk_common.skc_family);
	__be16 port = bpf_rdonly_cast ? readable(sock, sk)->__sk_common.skc_dport : BPF_CORE_READ(sk, __sk_common.skc_dport);

	switch (family) {
	case 1: // AF_UNIX
		return UNIX;
	case 2:	 // AF_INET
	case 10: // AF_INET6
		return port == bpf_htons(53) ? DNS : NET;
	case 40: // AF_VSOCK
		return NET;
	}
	return OTHER; // netlink and the like
}

// class_of_nameless returns the class of a descriptor without an inode of its own.
static __always_inline __u32 class_of_nameless(struct file *file)
{
	const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
	char text[8] = {};

	bpf_probe_read_kernel(text, sizeof(text), name);
	switch (text[1]) {
	case 'e':
		return text[6] == 'f' ? PIPE : EPOLL; // [eventfd], [eventpoll]
	case 's':
	case 't':
		return SLEEP; // [signalfd], [timerfd]
	case 'i':
		return IOURING; // [io_uring]
	}
	return OTHER;
}

static __always_inline __u32 class_of_device(__u32 device)
{
	__u32 major = device >> 20;

	return major == 4 || major == 5 || (major >= 136 && major <= 143) ? TTY : OTHER;
}

static __always_inline __u32 class_of_fd(struct task_struct *task, __u64 fd)
{
	struct fdtable *table = task->files->fdt;
	struct file *file;

	fd = (__u32)fd;
	if (fd >= table->max_fds)
		return OTHER;
	file = file_of(table, fd);
	if (!file)
		return OTHER;
	switch (mode_of(file) & 0170000) {
	case 0140000:
		return class_of_socket(file);
	case 0010000:
		return PIPE;
	case 0020000:
		return class_of_device(BPF_CORE_READ(file, f_inode, i_rdev));
	case 0100000: // regular file
	case 0040000: // folder
	case 0060000: // block device
		return FILE_;
	}
	return class_of_nameless(file);
}

// class_of_poll reads the first descriptor polled from the memory of the current process.
static __always_inline __u32 class_of_poll(struct task_struct *task, __u64 polled)
{
	__s32 fd = -1;

	bpf_probe_read_user(&fd, sizeof(fd), (void *)polled);
	return fd >= 0 && class_of_fd(task, fd) == DNS ? DNS : POLL;
}

// call_of returns the number of the system call that task is in, and its first argument; negative: none.
static __always_inline __s64 call_of(struct task_struct *task, __u64 *argument)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
	*argument = regs->di;
	return (__s64)regs->orig_ax;
#else
	*argument = regs->orig_x0;
	return regs->syscallno;
#endif
}

// classify_runnable returns the reason for which task leaves its CPU though it could run. On the way back from the
// kernel to the program, a task also calls the scheduler by itself when its time is up.
static __always_inline __u32 classify_runnable(struct task_struct *task)
{
	__u64 argument;
	__s64 nr = call_of(task, &argument);

	return nr >= 0 && nr < MAX_SYSCALLS && kinds[nr] == RUNQUEUE ? RUNQUEUE : PREEMPTED;
}

// classify returns the reason for which task waits, and its system call. is_current is true if the memory of task can
// be read.
static __always_inline __u32 classify(struct task_struct *task, __u32 state, bool is_current, __s32 *syscall)
{
	__u32 flags = task->flags, kind;
	__u64 argument;
	__s64 nr;

	*syscall = NO_SYSCALL;
	if (flags & PF_KTHREAD)
		return OTHER;
	if (flags & PF_IO_WORKER)
		return IOURING;
	if (state & (TASK_STOPPED | TASK_TRACED | TASK_PARKED | TASK_FROZEN))
		return OTHER;
#if defined(__TARGET_ARCH_x86)
	if (task->thread_info.status & 2) // TS_COMPAT: numbers of 32 bit programs
		return OTHER;
#endif
	nr = call_of(task, &argument);
	if (nr < 0)
		return FAULT;
	if (nr >= MAX_SYSCALLS)
		return OTHER;
	*syscall = nr;
	kind = kinds[nr];
	switch (kind) {
	case BY_FIRST_FD:
		return class_of_fd(task, argument);
	case BY_POLLED_FD:
		return is_current ? class_of_poll(task, argument) : POLL;
	}
	return kind < CLASSES ? kind : OTHER;
}

// label is a label of a goroutine: two strings.
struct label {
	__u64 key, key_length, value, value_length;
};

static __always_inline bool is_trace(struct label *l)
{
	return l->key_length == 8 && l->value_length == TRACE_DIGITS;
}

static __always_inline bool is_span(struct label *l)
{
	return l->key_length == 7 && l->value_length == SPAN_DIGITS;
}

// read_pair reads the two labels if the goroutine has no others, as the library agents/tracepoint sets them: keys and
// values next to each other. It reports whether it has.
static __always_inline bool read_pair(struct thread *t, __u64 list)
{
	struct label l[2];
	char keys[16];

	if (bpf_probe_read_user(l, sizeof(l), (void *)list) || !is_span(&l[0]) || !is_trace(&l[1]))
		return false;
	if (l[0].key != l[1].key + 8 || l[0].value != l[1].value + TRACE_DIGITS)
		return false;
	if (bpf_probe_read_user(keys, 15, (void *)l[1].key) || __builtin_memcmp(keys, "trace_idspan_id", 15))
		return false;
	return !bpf_probe_read_user(t->span_text, sizeof(t->span_text), (void *)l[1].value);
}

// read_label keeps a label of a goroutine if it is one of the two, and reports whether it could be read.
static __always_inline bool read_label(struct thread *t, __u64 address, __u32 *kept)
{
	struct label l;
	char key[8];

	if (bpf_probe_read_user(&l, sizeof(l), (void *)address))
		return false;
	if (is_trace(&l)) {
		if (bpf_probe_read_user(key, 8, (void *)l.key))
			return false;
		if (__builtin_memcmp(key, "trace_id", 8))
			return true;
		*kept |= 1;
		return !bpf_probe_read_user(t->span_text, TRACE_DIGITS, (void *)l.value);
	}
	if (is_span(&l)) {
		if (bpf_probe_read_user(key, 7, (void *)l.key))
			return false;
		if (__builtin_memcmp(key, "span_id", 7))
			return true;
		*kept |= 2;
		return !bpf_probe_read_user(t->span_text + TRACE_DIGITS, SPAN_DIGITS, (void *)l.value);
	}
	return true;
}

// find_labels reads the labels of the goroutine that the current thread runs, as Go 1.24 and later keep them: a slice
// of pairs of strings.
static __always_inline __u32 find_labels(struct context *c, struct thread *t, __u64 thread_pointer)
{
	struct {
		__u64 first, length;
	} list;
	__u64 g, m, labels;
	__u32 kept = 0;

	if (bpf_probe_read_user(&g, sizeof(g), (void *)(thread_pointer + c->tls)))
		return UNREADABLE;
	if (!g)
		return NO_GOROUTINE;
	if (bpf_probe_read_user(&labels, sizeof(labels), (void *)(g + c->labels)))
		return UNREADABLE;
	if (!labels) { // perhaps the thread's own goroutine, which runs the scheduler and has no labels
		if (bpf_probe_read_user(&m, sizeof(m), (void *)(g + c->m)))
			return UNREADABLE;
		if (bpf_probe_read_user(&g, sizeof(g), (void *)(m + c->curg)))
			return UNREADABLE;
		if (!g)
			return NO_GOROUTINE;
		if (bpf_probe_read_user(&labels, sizeof(labels), (void *)(g + c->labels)))
			return UNREADABLE;
	}
	if (!labels)
		return NO_SPAN;
	if (bpf_probe_read_user(&list, sizeof(list), (void *)labels))
		return UNREADABLE;
	if (list.length == 2 && read_pair(t, list.first))
		return HEX;
	for (__u32 i = 0; i < MAX_LABELS && i < list.length && kept != 3; i++) {
		if (!read_label(t, list.first + sizeof(struct label) * i, &kept))
			return UNREADABLE;
	}
	return kept == 3 ? HEX : NO_SPAN;
}

// find_record reads the record that the current thread has attached.
static __always_inline __u32 find_record(struct context *c, struct thread *t, __u64 thread_pointer)
{
	__u8 record[RECORD_SIZE];
	__u64 at;

	if (bpf_probe_read_user(&at, sizeof(at), (void *)(thread_pointer + c->tls)))
		return UNREADABLE;
	if (!at)
		return NO_SPAN;
	if (bpf_probe_read_user(record, sizeof(record), (void *)at))
		return UNREADABLE;
	if (record[24] != 1) // being written
		return NO_SPAN;
	if (!(record[25] & 1))
		return UNSAMPLED;
	__builtin_memcpy(t->span_text, record, 16);
	__builtin_memcpy(t->span_text + TRACE_DIGITS, record + 16, 8);
	return BINARY;
}

// slot is the record of a thread in a table, as class ThreadSlot of the JVM agent writes it.
struct slot {
	__u8 text[TRACE_DIGITS + SPAN_DIGITS];
	__u32 number; // of the thread
	__u32 state;
	__u64 start; // of the thread, in ticks
};

// States of a slot.
enum {
	SLOT_SAMPLED = 1,
	SLOT_UNSAMPLED = 2,
};

// number_of returns the number that a thread itself sees; 0 if it cannot be read.
static __always_inline __u32 number_of(struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	__u32 level = pid->level, number = 0;

	if (!level)
		return task->pid;
	if (level > MAX_NAMESPACES)
		return 0;
	bpf_probe_read_kernel(&number, sizeof(number), (void *)pid + bpf_core_field_offset(struct pid, numbers) + level * bpf_core_type_size(struct upid));
	return number;
}

// find_slot reads the record of the current thread in the table of its process. Memory that is not in place has never
// been written: no thread there has had a span.
static __always_inline __u32 find_slot(struct context *c, struct task_struct *task, struct thread *t)
{
	__u32 number = number_of(task);
	struct slot s;

	if (!c->slots || bpf_probe_read_user(&s, sizeof(s), (void *)(c->table + sizeof(s) * (number % c->slots))))
		return NO_SPAN;
	if (s.number != number || s.start != task->start_boottime / CLOCK_TICK_NS) // of another thread
		return NO_SPAN;
	switch (s.state) {
	case SLOT_SAMPLED:
		__builtin_memcpy(t->span_text, s.text, sizeof(s.text));
		return HEX;
	case SLOT_UNSAMPLED:
		return UNSAMPLED;
	}
	return NO_SPAN;
}

// find_span finds the span that the current thread works for, before it waits.
static __always_inline __u32 find_span(struct task_struct *task, struct thread *t)
{
	struct target *target = &t->target;
	__u64 thread_pointer = 0;

#if defined(__TARGET_ARCH_x86)
	thread_pointer = task->thread.fsbase;
#endif
	if (!(wants(target, t->class) || wants(target, RUNQUEUE)))
		return NOT_SOUGHT;
	if (target->context.kind == THREAD_TABLE)
		return find_slot(&target->context, task, t);
	if (!thread_pointer)
		return NOT_SOUGHT;
	switch (target->context.kind) {
	case GO_LABELS:
		return find_labels(&target->context, t, thread_pointer);
	case THREAD_RECORD:
		return find_record(&target->context, t, thread_pointer);
	}
	return NOT_SOUGHT;
}

// sample takes a stack of the thread that leaves the CPU, unless it has taken one just before, or nobody wants to know
// of its wait, nor of the wait for a CPU after it.
static __always_inline __s32 sample(void *ctx, struct thread *t, __u64 now)
{
	__u32 wanted = t->target.classes | t->target.events;
	__s32 stack;

	if (!(t->target.flags & WITH_STACKS) || now - t->stack_at < stack_period_ns || !(wanted & (1 << RUNQUEUE | 1 << t->class)))
		return -1;
	t->stack_at = now;
	stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (stack < 0)
		increment(lost_stacks);
	return stack;
}

// stack_of returns the stack of the present wait, unless it may have been deleted since.
static __always_inline __s32 stack_of(struct thread *t) { return t->stack_at < forgotten ? -1 : t->stack; }

static __always_inline bool in_span(struct thread *t) { return t->found == HEX || t->found == BINARY; }

// miss adds an event that is missing.
static __always_inline void miss(__u32 tgid, __u32 class, __u32 reason, __u64 ns)
{
	struct missing_key key = {.tgid = tgid, .class = class, .reason = reason};
	struct missed *m = bpf_map_lookup_elem(&missing, &key), none = {};

	if (!m) {
		bpf_map_update_elem(&missing, &key, &none, BPF_NOEXIST);
		m = bpf_map_lookup_elem(&missing, &key);
	}
	if (!m) {
		increment(lost_missing);
		return;
	}
	increment(m->count);
	__sync_fetch_and_add(&m->total_ns, ns);
}

// miss_event adds the parts of an event that is missing.
static __always_inline void miss_event(__u32 tgid, struct interval *i, __u32 reason)
{
	if (i->told)
		miss(tgid, i->class, reason, i->wait_ns);
	if (i->runq_told)
		miss(tgid, RUNQUEUE, reason, i->runq_ns);
}

// may_send reports whether process tgid has sent fewer events than its rate allows.
static __always_inline bool may_send(struct target *target, __u32 tgid, __u64 now)
{
	struct rate *rate = &rates[tgid % RATES];
	__u64 window = now >> RATE_WINDOW_BITS;

	if (rate->window != window) {
		rate->window = window;
		rate->sent = 0;
	}
	if (rate->sent >= target->max_events)
		return false;
	rate->sent++;
	return true;
}

// send sends an event about the span with the given text, at the time now.
static __always_inline void send(struct task_struct *task, struct thread *t, struct interval *i, const __u8 *text, __u16 found, __u64 now)
{
	struct target *target = &t->target;
	struct event *e;

	if (!may_send(target, task->tgid, now)) {
		increment(limited_events);
		miss_event(task->tgid, i, LIMITED);
		return;
	}
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		increment(lost_events);
		miss_event(task->tgid, i, LOST);
		return;
	}
	e->end = i->end;
	e->wait_ns = i->wait_ns;
	e->runq_ns = i->runq_ns;
	e->tgid = task->tgid;
	e->tid = task->pid;
	e->syscall = i->syscall;
	e->class = i->class;
	e->stack = stack_of(t);
	e->found = found;
	e->more = i->more;
	copy_comm(e->comm, task);
	__builtin_memcpy(e->trace, text, sizeof(e->trace));
	__builtin_memcpy(e->span, text + TRACE_DIGITS, sizeof(e->span));
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

// tell decides what an event tells: a wait and a run-queue part that exceed their thresholds. If one of them does, the
// other one is told as well unless it is much shorter, because there would be no room for it later.
static __always_inline void tell(struct target *target, struct interval *i)
{
	bool wait = wants(target, i->class), runq = wants(target, RUNQUEUE);

	i->told = wait && i->over;
	i->runq_told = runq && i->runq_over;
	if (!(target->flags & ONLY_IN_SPANS) || !(i->told || i->runq_told) || i->class >= CLASSES)
		return;
	i->told = wait && i->wait_ns && i->wait_ns >= target->threshold_ns[i->class] >> TOLD_AS_WELL_BITS;
	i->runq_told = runq && i->runq_ns && i->runq_ns >= target->threshold_ns[RUNQUEUE] >> TOLD_AS_WELL_BITS;
}

// take_place takes the time of an event in its span, and remembers the gap before it.
static __always_inline void take_place(struct thread *t, struct interval *i)
{
	__u64 woken = i->end - i->runq_ns, start = i->told ? woken - i->wait_ns : woken;

	if (start > t->free && start - t->free > t->gap_end - t->gap) {
		t->gap = t->free;
		t->gap_end = start;
	}
	t->free = i->runq_told ? i->end : woken;
}

// send_single sends a wait that exceeds a threshold.
static __always_inline void send_single(struct task_struct *task, struct thread *t, struct interval *i, __u64 now)
{
	if (!i->told && !i->runq_told)
		return;
	if ((t->target.flags & ONLY_IN_SPANS) && !in_span(t)) {
		if (t->found == UNREADABLE)
			miss_event(task->tgid, i, UNKNOWN);
		return;
	}
	take_place(t, i);
	send(task, t, i, t->span_text, t->found, now);
}

// hash_of returns a hash of the span of the present wait.
static __always_inline __u64 hash_of(struct thread *t)
{
	const __u64 *words = (const __u64 *)t->span_text;
	__u64 hash = 0;

#pragma unroll
	for (int i = 0; i < sizeof(t->span_text) / sizeof(*words); i++)
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15;
	return hash;
}

// place sends short waits as one, in the time in their span from *from on, if there is room for least of them.
static __always_inline void place(struct task_struct *task, struct thread *t, __u32 class, __u64 *from, __u64 to, __u64 least, __u64 now)
{
	struct brief *b = &t->brief[class];
	struct interval i = {.class = class, .syscall = b->syscall, .told = true};
	__u64 room = to > *from ? to - *from : 0;

	i.wait_ns = room < b->ns ? room : b->ns;
	if (!i.wait_ns || i.wait_ns < least)
		return;
	i.end = *from + i.wait_ns;
	i.more = b->count - 1 < 0xffff ? b->count - 1 : 0xffff;
	b->ns -= i.wait_ns;
	b->count = b->ns > 0;
	*from = i.end;
	send(task, t, &i, t->pending_text, t->pending_found, now);
}

// gather adds a wait that no event tells to those before it in the same span. When together they exceed the threshold,
// they are sent as one. Its place is where no event tells of the thread: in the longest gap between events, or at the
// beginning of the time since the last one. So events of a thread do not overlap. If there is less room, the rest is
// sent later.
static __always_inline void gather(struct task_struct *task, struct thread *t, __u32 class, __s32 syscall, __u64 ns, __u64 end, __u64 now)
{
	struct target *target = &t->target;
	__u64 threshold;

	if (class >= CLASSES || !ns || !wants(target, class) || !target->threshold_ns[class])
		return;
	threshold = target->threshold_ns[class];
	t->pending |= 1 << class;
	t->brief[class].ns += ns;
	t->brief[class].count++;
	t->brief[class].syscall = syscall;
	if (t->brief[class].ns < threshold)
		return;
	place(task, t, class, &t->gap, t->gap_end, threshold >> TOLD_AS_WELL_BITS, now);
	place(task, t, class, &t->free, end, threshold, now);
}

// settle_class sends the short waits of a class of the current task, t. It is global, so that the verifier checks it once
// and not for each class: that was half of its work.
__noinline int settle_class(struct thread *t, __u32 class, __u64 now)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct target *target;
	__u64 least;

	if (!t || class >= CLASSES)
		return 0;
	target = &t->target;
	least = target->threshold_ns[class] >> SETTLED_BITS;
	if (wants(target, class) && t->brief[class].ns >= least) {
		place(task, t, class, &t->gap, t->gap_end, least, now);
		place(task, t, class, &t->free, t->until, least, now);
	}
	if (t->brief[class].ns >= target->threshold_ns[class])
		miss(task->tgid, class, CRAMPED, t->brief[class].ns);
	t->brief[class].ns = 0;
	t->brief[class].count = 0;
	return 0;
}

// settle sends the short waits of the span that the current task, t, has left, unless they are very short: goroutines
// take turns on a thread, so that one span may have many such waits in many turns.
static __noinline void settle(struct thread *t, __u64 now)
{
	for (__u32 class = 0; class < CLASSES; class++)
		if (t->pending & 1 << class)
			settle_class(t, class, now);
	t->pending = 0;
}

// send_in_span sends a wait in a span, or adds it to other short ones, in the order in which its parts have passed.
static __noinline void send_in_span(struct task_struct *task, struct thread *t, struct interval *i, __u64 now)
{
	__u64 woken = i->end - i->runq_ns, span = hash_of(t);

	if (t->span != span) {
		t->span = span;
		t->free = woken - i->wait_ns;
		t->gap = t->gap_end = 0;
		__builtin_memcpy(t->pending_text, t->span_text, sizeof(t->pending_text));
		t->pending_found = t->found;
	}
	if (!i->told)
		gather(task, t, i->class, i->syscall, i->wait_ns, woken, now);
	send_single(task, t, i, now);
	if (!i->runq_told)
		gather(task, t, RUNQUEUE, i->syscall, i->runq_ns, i->end, now);
	t->until = i->end;
}

// attribute adds a wait to its stack, together with the short waits of the class since the last stack.
static __always_inline void attribute(__u32 tgid, struct thread *t, struct interval *i)
{
	struct target *target = &t->target;
	__u32 class = i->class;
	__s32 stack = stack_of(t);

	if ((target->flags & (WITH_STACKS | ONLY_IN_SPANS)) != WITH_STACKS || class >= CLASSES || !(target->classes & (1 << class)))
		return;
	if (stack >= 0) {
		add_stack(tgid, class, i->syscall, stack, i->wait_ns + t->unsampled[class]);
		t->unsampled[class] = 0;
	} else if (i->wait_ns < stack_period_ns) {
		t->unsampled[class] += i->wait_ns;
	}
}

// run_queue_part returns the time since the wake-up, of the present wait up to now.
static __always_inline __u64 run_queue_part(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 wait = now - t->since, delay;

	if (!tells_delay())
		return t->woken > t->since ? now - t->woken : 0;
	delay = delay_of(task) - t->delay;
	return delay < wait ? delay : wait;
}

// add_wait adds the wait that ends, and sends it if it exceeds a threshold.
static __always_inline void add_wait(struct task_struct *task, struct thread *t, __u64 now)
{
	struct interval i = {.class = t->class, .syscall = t->syscall, .wait_ns = now - t->since, .end = now};
	struct target *target = &t->target;

	if (t->since < target->begun)
		return;
	if (t->class > RUNQUEUE)
		i.runq_ns = run_queue_part(task, t, now);
	i.wait_ns -= i.runq_ns;
	i.over = exceeds(target, i.class, i.wait_ns);
	i.runq_over = exceeds(target, RUNQUEUE, i.runq_ns);
	add(target, task, &i);
	tell(target, &i);
	if ((target->flags & ONLY_IN_SPANS) && in_span(t))
		send_in_span(task, t, &i, now);
	else
		send_single(task, t, &i, now);
	attribute(task->tgid, t, &i);
}

// repair ends a wait whose switch to a CPU was not reported, which some kernels do when they switch from a task that they
// hide from tracing. The scheduler has counted the time on the CPU since.
static __noinline void repair(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 ran = task->se.sum_exec_runtime - t->ran;

	if (t->since < t->target.begun)
		return;
	if (ran > now - t->since)
		ran = now - t->since;
	add_wait(task, t, now - ran);
	t->since = now - ran;
	increment(unseen_switches);
}

// renewed returns the state of task, t, with the present target that its process is. It makes one if t is 0. It returns
// 0 if the process is no target.
static __noinline struct thread *renewed(struct task_struct *task, struct thread *t, __u64 generation)
{
	__u32 tgid = task->tgid;
	struct target *target = bpf_map_lookup_elem(&targets, &tgid);

	if (!target)
		return 0;
	if (!t)
		t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		increment(lost_threads);
		return 0;
	}
	if (t->target.added != target->added) { // what is left of an earlier observation
		__builtin_memset(&t->on_cpu, 0, sizeof(t->on_cpu));
		__builtin_memset(t->brief, 0, sizeof(t->brief));
		__builtin_memset(t->unsampled, 0, sizeof(t->unsampled));
		t->pending = 0;
	}
	__builtin_memcpy(&t->target, target, sizeof(*target));
	t->generation = generation;
	return t;
}

// state_of returns the state of task; 0 if its process is not observed now, or if the thread has ended. It sets *now if
// that is 0.
static __always_inline struct thread *state_of(struct task_struct *task, __u64 *now)
{
	__u64 generation;
	struct thread *t;

	if (!may_be_target(task->tgid))
		return 0;
	generation = applied + outdated; // read before the target: a later change is noticed at the next switch
	t = bpf_task_storage_get(&threads, task, 0, 0);
	if (!t || t->generation != generation)
		t = renewed(task, t, generation);
	if (!t || t->class == ENDED)
		return 0;
	if (!*now)
		*now = bpf_ktime_get_ns();
	return observed_at(&t->target, *now) ? t : 0;
}

// enter begins a state of a thread.
static __always_inline void enter(struct thread *t, __u32 class, __u64 now)
{
	t->since = now;
	t->woken = 0;
	t->class = class;
	t->syscall = NO_SYSCALL;
	t->stack = -1;
	t->found = NOT_SOUGHT;
}

// enter_wait begins a state in which task has no CPU.
static __always_inline void enter_wait(struct task_struct *task, struct thread *t, __u32 class, __u64 now)
{
	enter(t, class, now);
	t->ran = task->se.sum_exec_runtime;
	t->delay = delay_of(task);
}

// switch_out ends the time of task on its CPU, and begins its wait.
static __always_inline void switch_out(void *ctx, bool preempt, struct task_struct *task, __u32 state, __u64 *now)
{
	struct thread *t = state_of(task, now);

	if (!t)
		return;
	if (t->class != ONCPU)
		repair(task, t, *now);
	add_on_cpu(t, *now);
	enter_wait(task, t, PREEMPTED, *now);
	if (!preempt)
		t->class = state ? classify(task, state, true, &t->syscall) : classify_runnable(task);
	t->found = find_span(task, t);
	if (t->pending && !(in_span(t) && hash_of(t) == t->span))
		settle(t, *now);
	if (!(t->target.flags & ONLY_IN_SPANS) || in_span(t))
		t->stack = sample(ctx, t, *now);
}

// switch_in ends the wait of task, and begins its time on the CPU.
static __always_inline void switch_in(struct task_struct *task, __u64 *now)
{
	struct thread *t = state_of(task, now);

	if (!t)
		return;
	if (t->class != ONCPU)
		add_wait(task, t, *now);
	else if (t->since >= t->target.begun)
		increment(lost_switches);
	enter(t, ONCPU, *now);
}

// switch_observed handles a switch from or to a thread of a process that may be a target.
static __noinline int switch_observed(void *ctx, bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	__u64 now = 0;

	switch_out(ctx, preempt, prev, state, &now);
	switch_in(next, &now);
	return 0;
}

// switched runs for all threads of the machine: for nearly all of them it does nothing, which must cost next to nothing.
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	if (may_be_target(prev->tgid) || may_be_target(next->tgid))
		switch_observed(ctx, preempt, prev, next, prev_state);
	return 0;
}

// woken is attached only if the scheduler does not tell when a thread was woken.
SEC("tp_btf/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	__u64 now = 0;
	struct thread *t = state_of(task, &now);

	if (t && !t->woken && t->class > RUNQUEUE)
		t->woken = now;
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(created, struct task_struct *task)
{
	__u64 now = 0;
	struct thread *t = state_of(task, &now);

	if (t)
		enter_wait(task, t, RUNQUEUE, now);
	return 0;
}

// note makes may_be_target know process tgid.
static __always_inline void note(__u32 tgid)
{
	if (rotations % 2)
		__sync_fetch_and_or(&inherited_odd[tgid % FILTER_BITS / 64], 1ULL << (tgid % 64));
	else
		__sync_fetch_and_or(&inherited_even[tgid % FILTER_BITS / 64], 1ULL << (tgid % 64));
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct target *target;
	__u32 tgid = child->tgid;

	if (tgid == parent->tgid)
		return 0;
	target = target_now(parent->tgid);
	if (!target || !(target->flags & WITH_CHILDREN))
		return 0;
	note(tgid);
	if (bpf_map_update_elem(&targets, &tgid, target, 0))
		increment(lost_targets);
	increment(changes);
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (target)
		target->context.kind = NO_CONTEXT; // it may soon run another program; the agent looks
	return 0;
}

// join adds a sum to another one.
static __always_inline void join(struct sum *to, struct sum *from)
{
	to->count += from->count;
	to->total_ns += from->total_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
	to->last = from->last;
	to->over += from->over;
	for (int i = 0; i < BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

// keep_on_cpu moves the time on CPUs that task, t, had under a number to the other sums, with its last name. Another
// thread may have had the number before.
static __noinline int keep_on_cpu(struct task_struct *task, struct thread *t, __u32 tid)
{
	struct sum_key key = {.tgid = task->tgid, .tid = tid, .syscall = NO_SYSCALL, .class = ONCPU};
	struct sum *before;

	if (!t || !t->on_cpu.count)
		return 0;
	copy_comm(t->on_cpu.comm, task);
	before = bpf_map_lookup_elem(&sums, &key);
	if (before)
		join(before, &t->on_cpu);
	else if (bpf_map_update_elem(&sums, &key, &t->on_cpu, 0))
		increment(lost_sums);
	__builtin_memset(&t->on_cpu, 0, sizeof(t->on_cpu));
	return 0;
}

static __always_inline bool is_wanted(struct task_struct *task)
{
	__u64 name[2];
	const volatile __u64 *wanted = (const volatile __u64 *)wanted_comm;

	if (!wanted_comm[0])
		return false;
	copy_comm((__u8 *)name, task);
	return name[0] == wanted[0] && name[1] == wanted[1];
}

// adopt makes the process of task, which has just started its program, a target. The agent looks for processes once a
// second, and would miss short ones.
static __noinline int adopt(struct task_struct *task)
{
	struct target *target;
	struct thread *t;
	__u64 now = bpf_ktime_get_ns();
	__u32 tgid = task->tgid;

	if (now >= until)
		return 0;
	note(tgid);
	if (bpf_map_update_elem(&targets, &tgid, &wanted_target, 0)) {
		increment(lost_targets);
		return 0;
	}
	target = bpf_map_lookup_elem(&targets, &tgid);
	if (!target)
		return 0;
	target->begun = target->added = now;
	increment(outdated);
	increment(changes);
	t = state_of(task, &now);
	if (t)
		enter_wait(task, t, ONCPU, now);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(executed, struct task_struct *task, int before)
{
	struct target *target = target_now(task->tgid);

	if (!target) {
		if (is_wanted(task))
			adopt(task);
		return 0;
	}
	if (before != task->pid) // it takes the number of the first thread, which has ended
		keep_on_cpu(task, bpf_task_storage_get(&threads, task, 0, 0), before);
	target->context.kind = NO_CONTEXT; // it runs another program; the agent looks
	increment(outdated);
	increment(changes);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(exited, struct task_struct *task)
{
	__u64 now = 0;
	__u32 tgid = task->tgid;
	struct thread *t = state_of(task, &now);

	if (t) {
		add_on_cpu(t, now);
		keep_on_cpu(task, t, task->pid);
		if (t->pending)
			settle(t, now);
		t->class = ENDED;
	}
	if (may_be_target(tgid) && !task->signal->live.counter) { // the last thread: another process may get the number
		bpf_map_delete_elem(&targets, &tgid);
		increment(changes);
	}
	return 0;
}

// sampled runs on every tick of the CPU clock.
SEC("perf_event")
int sampled(struct bpf_perf_event_data *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct target *target = target_now(tgid);
	__s32 stack;

	if (!target || !(target->flags & WITH_STACKS) || !(target->classes & (1 << ONCPU)))
		return 0;
	stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	if (stack < 0)
		increment(lost_stacks);
	else
		add_stack(tgid, ONCPU, NO_SYSCALL, stack, sample_period_ns);
	return 0;
}

// begin sets the state of a thread that has not been switched since its process is observed.
static __always_inline void begin(struct task_struct *task, struct thread *t, __u64 now)
{
	__u32 state = task->__state;

	enter_wait(task, t, ONCPU, now);
	if (state & (EXIT_DEAD | EXIT_ZOMBIE | TASK_DEAD))
		t->class = ENDED;
	else if (!task->on_cpu)
		t->class = state ? classify(task, state, false, &t->syscall) : RUNQUEUE;
}

// woken_at returns the time of the wake-up of a thread that waits for a CPU at a time, 0 if it does not. It may be on a
// CPU already, if the observation ended just before.
static __always_inline __u64 woken_at(struct task_struct *task, struct thread *t, __u64 now)
{
	__u64 queued = task->sched_info.last_queued, clock = task->se.cfs_rq->rq->clock;
	__u64 fresher = bpf_get_current_task_btf()->se.cfs_rq->rq->clock; // of the CPU of the agent, which has just been switched to
	__u64 part = task->sched_info.run_delay - t->delay;

	if (fresher > clock)
		clock = fresher;
	if (queued && clock > queued)
		part += clock - queued;
	if (t->class <= RUNQUEUE || !part)
		return 0;
	return t->since + part < now ? now - part : t->since;
}

// observe writes the present state and the time on CPUs of each thread of the targets. It begins to observe those that
// are not yet.
SEC("iter/task")
int observe(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct target *target;
	struct thread *t;
	struct open o = {};

	if (!task)
		return 0;
	o.tgid = task->tgid;
	target = bpf_map_lookup_elem(&targets, &o.tgid);
	if (!target)
		return 0;
	t = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t) {
		increment(lost_threads);
		return 0;
	}
	if (t->class == ENDED)
		return 0;
	o.now = bpf_ktime_get_ns();
	if (t->since < target->begun && o.now < until)
		begin(task, t, o.now);
	if (t->class == ENDED)
		return 0;
	o.tid = task->pid;
	o.syscall = t->syscall;
	o.class = t->class;
	o.since = t->since;
	o.woken = t->woken;
	o.now = bpf_ktime_get_ns(); // after since and woken, which another CPU may change
	if (o.now > until)
		o.now = until;
	if (tells_delay())
		o.woken = woken_at(task, t, o.now);
	// The agent reads the clock before it sets until: the state may have begun in between.
	if (o.now < o.since)
		o.now = o.since;
	if (o.woken > o.now)
		o.woken = 0;
	copy_comm(o.comm, task);
	bpf_seq_write(ctx->meta->seq, &o, sizeof(o));
	bpf_seq_write(ctx->meta->seq, t->target.added == target->added ? &t->on_cpu : &empty_sum, sizeof(t->on_cpu));
	return 0;
}
