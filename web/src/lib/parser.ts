// What a stream of server-sent events says.

// Parser splits a stream into events, wherever it was cut.
export class Parser {
  private rest = "";
  constructor(private readonly emit: (id: string, type: string, data: string) => void) {}

  push(text: string) {
    const parts = (this.rest + text).split("\n\n");
    this.rest = parts.pop() ?? "";
    for (const part of parts) {
      const field = (name: string) =>
        part
          .split("\n")
          .filter((line) => line.startsWith(`${name}: `))
          .map((line) => line.slice(name.length + 2))
          .join("\n");
      if (field("data") || field("event")) this.emit(field("id"), field("event"), field("data") || "{}");
    }
  }
}
