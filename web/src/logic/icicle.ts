// Critical paths as nested boxes, by calling context.
import type { Schemas } from "../api/client.ts";

type Place = Pick<Schemas["Place"], "context" | "label">;

// Box is a calling context. x and width are fractions of the whole; the width includes children. own is its weight
// without children; edges are the indexes of its places.
export type Box = {
  key: string;
  label: string;
  depth: number;
  x: number;
  width: number;
  own: number;
  children: Box[];
  edges: number[];
};

// boxes returns the boxes of places in pre-order, the widest child first. Negative weights count as 0.
export function boxes(places: Place[], weight: (i: number) => number): Box[] {
  const root: Box = { key: "", label: "", depth: -1, x: 0, width: 0, own: 0, children: [], edges: [] };
  places.forEach(({ context, label }, i) => {
    const path = context.length > 0 ? context : [label];
    let at = root;
    for (const label of path) {
      const key = `${at.key}\n${label}`;
      let child = at.children.find((c) => c.key === key);
      if (!child) {
        child = {
          key,
          label,
          depth: at.depth + 1,
          x: 0,
          width: 0,
          own: 0,
          children: [],
          edges: [],
        };
        at.children.push(child);
      }
      at = child;
    }
    at.own += Math.max(0, weight(i));
    at.edges.push(i);
  });
  const total = measure(root) || 1;
  place(root, 0, total);
  const flat: Box[] = [];
  const visit = (box: Box) => {
    if (box.depth >= 0) flat.push(box);
    box.children.forEach(visit);
  };
  visit(root);
  return flat;
}

function measure(box: Box): number {
  box.width = box.own + box.children.reduce((sum, child) => sum + measure(child), 0);
  return box.width;
}

function place(box: Box, x: number, total: number) {
  box.x = x;
  let at = x;
  box.children.sort((a, b) => b.width - a.width);
  for (const child of box.children) {
    const width = child.width / total;
    place(child, at, total);
    at += width;
  }
  box.width /= total;
}
