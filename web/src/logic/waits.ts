// Spans of kernel waits: what their thread waited for.

import type { Schemas } from "../api/client.ts";
import { duration } from "./format.ts";

const classes: Record<string, string> = {
  preempted: "a CPU (preempted by other threads)",
  runqueue: "a CPU (on a run queue)",
  file: "the disk (files)",
  sync: "the disk (fsync)",
  fault: "memory (page faults)",
  net: "the network",
  dns: "DNS",
  unix: "another process (Unix socket)",
  pipe: "a pipe",
  epoll: "events (epoll)",
  poll: "descriptors (poll)",
  futex: "a lock (futex)",
  sleep: "a timer (sleep)",
  iouring: "io_uring",
  child: "a child process",
  tty: "a terminal",
};

/** waitedFor describes the wait that a span with these attributes is about; "" if it is about none. */
export function waitedFor(attributes: Schemas["Attribute"][]): string {
  const value = (key: string) => attributes.find((a) => a.key === key)?.value ?? "";
  const name = value("sibyl.wait.class");
  if (!name) return "";
  const call = value("sibyl.wait.syscall");
  const queued = Number(value("sibyl.wait.runqueue_ns"));
  return (
    (classes[name] ?? "the kernel") +
    (call ? `, in ${call}` : "") +
    (queued > 0 ? `; then ${duration(queued)} for a CPU` : "")
  );
}
