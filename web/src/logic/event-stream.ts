import { createParser } from "eventsource-parser";

// eventDecoder returns a function that takes the chunks of a stream of server-sent events. It calls emit with the ID of
// each event, empty if it has none, and its decoded data; with null for a reset, which means that events were missed.
export function eventDecoder(emit: (id: string, data: unknown) => void): (text: string) => void {
  const parser = createParser({
    onEvent: ({ id, event, data }) => emit(id ?? "", event === "reset" ? null : JSON.parse(data)),
  });
  return (text) => parser.feed(text);
}
