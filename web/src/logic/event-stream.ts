import { createParser } from "eventsource-parser";

// eventDecoder returns a function that takes a stream of server-sent events in pieces, cut anywhere. It calls emit with the ID of each event, empty
// if it has none, and with its data decoded; with null for a reset, after which events are missing.
export function eventDecoder(emit: (id: string, data: unknown) => void): (text: string) => void {
  const parser = createParser({
    onEvent: ({ id, event, data }) => emit(id ?? "", event === "reset" ? null : JSON.parse(data)),
  });
  return (text) => parser.feed(text);
}
