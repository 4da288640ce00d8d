// Spans of kernel waits: what their thread waited for.

import type { Schemas } from "../api/client.ts";
import { duration } from "./format.ts";

const classes: Record<string, string> = {
  preempted: "a CPU",
  runqueue: "a CPU",
  file: "the disk (reading or writing files)",
  sync: "the disk (fsync)",
  fault: "memory pages (page faults)",
  net: "the network",
  dns: "DNS answers",
  unix: "another process of the host (Unix socket)",
  pipe: "a pipe",
  epoll: "one of many connections (epoll)",
  poll: "one of several connections (poll)",
  futex: "a lock",
  sleep: "a pause in its own code (sleep)",
  iouring: "I/O (io_uring)",
  child: "a process that it started",
  tty: "a terminal",
  other: "something else in the kernel",
};

/** spanName returns the name of a span for people: that of a wait in the kernel is the same as in sentences. */
export function spanName(name: string): string {
  const wait = name.startsWith("wait ") && classes[name.slice("wait ".length)];
  if (!wait) return name;
  return name === "wait sleep" ? "sleeping (a pause in its own code)" : `waiting for ${wait}`;
}

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
