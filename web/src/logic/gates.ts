// Gates in the units of forms: percent and milliseconds.
import type { Schemas } from "../api/client.ts";

export type Gate = Schemas["Gate"];

const unit = (gate: Gate) => (gate.endsWith("_ns") ? 1e-6 : 100);

// gateValue returns the value of a gate.
export const gateValue = (gates: Schemas["Gates"], gate: Gate): number => +(gates[gate] * unit(gate)).toPrecision(6);

// gatesRequest returns the gates to set: those set before, and those that differ from gates. Those that the
// configuration sets are left out.
export function gatesRequest(gates: Schemas["Gates"], values: Record<Gate, string>): Schemas["GatesRequest"] {
  const body: Schemas["GatesRequest"] = {};
  for (const gate of Object.keys(values) as Gate[]) {
    const value = Number(values[gate]);
    const kept = gates.edited.includes(gate) || value !== gateValue(gates, gate);
    if (!gates.configured.includes(gate) && kept) body[gate] = +(value / unit(gate)).toPrecision(9);
  }
  return body;
}
