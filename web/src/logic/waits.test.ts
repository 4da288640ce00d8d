// What spans of kernel waits waited for.
import { expect, test } from "vitest";
import { spanName, waitedFor } from "./waits.ts";

const attributes = (of: Record<string, string>) => Object.entries(of).map(([key, value]) => ({ key, value }));

test("a wait is described by its class, its system call and the time on the run queue", () => {
  expect(waitedFor(attributes({ "sibyl.wait.class": "sync", "sibyl.wait.syscall": "fsync" }))).toBe(
    "the disk (fsync), in fsync",
  );
  expect(waitedFor(attributes({ "sibyl.wait.class": "futex", "sibyl.wait.runqueue_ns": "2000000" }))).toBe(
    "a lock; then 2 ms for a CPU",
  );
  expect(waitedFor(attributes({ "sibyl.wait.class": "fault", "sibyl.wait.runqueue_ns": "0" }))).toBe(
    "memory pages (page faults)",
  );
  expect(waitedFor(attributes({ "sibyl.wait.class": "unheard of" }))).toBe("the kernel");
  expect(waitedFor(attributes({ "http.route": "/" }))).toBe("");
});

test("spans of waits are named for people", () => {
  expect(spanName("wait sync")).toBe("waiting for the disk (fsync)");
  expect(spanName("wait sleep")).toBe("sleeping (a pause in its own code)");
  expect(spanName("wait other")).toBe("waiting for something else in the kernel");
  expect(spanName("wait for Godot")).toBe("wait for Godot");
  expect(spanName("POST /orders")).toBe("POST /orders");
});
