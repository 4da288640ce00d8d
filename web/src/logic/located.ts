// Located places.
import type { Schemas } from "../api/client.ts";

// wholes name what the shares of a located place are of.
export const wholes: Record<Schemas["LocatedPlace"]["of"], string> = {
  added_latency: "of the added latency",
  slowdown: "of the slowdown",
  variance: "of the variance",
  mean: "of the mean",
};
