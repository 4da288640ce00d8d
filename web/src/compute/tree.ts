// Calling-context trees: which nodes are shown.
import type { Schemas } from "../api/client.ts";

type Node = Schemas["TreeNode"];

// visible returns the indexes of the nodes to show, in pre-order. Without a filter those are the nodes that are not below a folded one; with
// one, those that pass it, and the nodes above them.
export function visible(nodes: Node[], folded: ReadonlySet<number>, passes?: (n: Node) => boolean): number[] {
  if (passes) {
    const keep = new Set<number>();
    for (const node of nodes) {
      if (!passes(node)) continue;
      for (let i = node.index; i >= 0 && !keep.has(i); i = nodes[i]?.parent ?? -1) keep.add(i);
    }
    return nodes.filter((n) => keep.has(n.index)).map((n) => n.index);
  }
  const found: number[] = [];
  for (let i = 0; i < nodes.length; i++) {
    found.push(i);
    if (folded.has(i)) i = Math.min(nodes[i]!.end, nodes.length) - 1;
  }
  return found;
}

// foldedAtFirst folds what lies deeper than a few levels, but for the ways to the nodes that matter.
export function foldedAtFirst(nodes: Node[], matter: Iterable<number>, depth: number): Set<number> {
  const folded = new Set(nodes.filter((n) => n.depth >= depth && n.end > n.index + 1).map((n) => n.index));
  for (const index of matter) {
    for (let i = nodes[index]?.parent ?? -1; i >= 0; i = nodes[i]?.parent ?? -1) folded.delete(i);
  }
  return folded;
}
