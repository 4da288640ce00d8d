// Colours of the services of a trace.

// colors is the number of colours; 0 is that of all further services.
const colors = 8;

export type ServiceColor = { color: number; spans: number };

// serviceColors returns the colour of each service, 1 to 8 in the order of their first spans, with their number of spans.
// Further services share the colour 0.
export function serviceColors(spans: readonly { service: string }[]): Map<string, ServiceColor> {
  const found = new Map<string, ServiceColor>();
  for (const { service } of spans) {
    const known = found.get(service);
    if (known) known.spans++;
    else found.set(service, { color: found.size < colors ? found.size + 1 : 0, spans: 1 });
  }
  return found;
}
