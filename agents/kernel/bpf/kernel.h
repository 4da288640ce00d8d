// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The fields of the kernel that wait.bpf.c reads, and nothing else. The loader relocates them (CO-RE) by the type
// information of the running kernel, so their order and their neighbours do not matter here.
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

// Of linux/bpf.h.
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,

	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_F_USER_STACK = 1 << 8,
	BPF_RB_NO_WAKEUP = 1,
};

// Of linux/sched.h.
enum {
	TASK_STOPPED = 0x04,
	TASK_TRACED = 0x08,
	EXIT_DEAD = 0x10,
	EXIT_ZOMBIE = 0x20,
	TASK_PARKED = 0x40,
	TASK_DEAD = 0x80,
	TASK_FROZEN = 0x8000,

	PF_IO_WORKER = 0x00000010,
	PF_KTHREAD = 0x00200000,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct thread_info {
	__u32 status; // x86
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct sock_common {
	__be16 skc_dport;
	__u16 skc_family;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	struct sock *sk;
};

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct inode {
	__u16 i_mode;
	__u32 i_rdev;
};

struct file {
	struct inode *f_inode;
	void *private_data;
	struct path f_path;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct rq {
	__u64 clock;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	__u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct thread_struct {
	unsigned long fsbase; // x86
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level; // of namespaces: 0 is that of the machine
	struct upid numbers[1];
};

struct task_struct {
	struct thread_info thread_info;
	struct thread_struct thread;
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int pid;
	int tgid;
	struct pid *thread_pid;
	__u64 start_boottime;
	struct sched_entity se;
	struct sched_info sched_info;
	struct signal_struct *signal;
	struct files_struct *files;
	char comm[16];
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long di;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	__u64 orig_x0;
	__s32 syscallno;
};
#else
#error "wait.bpf.c knows how x86 and arm64 pass the number of a system call and its first argument"
#endif

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct bpf_perf_event_data;

#pragma clang attribute pop
