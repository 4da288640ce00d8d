// Visibility of the nodes of calling-context trees.
import type { Schemas } from "../api/client.ts";

type Node = Schemas["TreeNode"];

// visible returns the indexes of the visible nodes in pre-order: without a filter, all except descendants of collapsed
// ones; with a filter, those that pass it and their ancestors.
export function visible(nodes: Node[], folded: ReadonlySet<string>, passes?: (n: Node) => boolean): number[] {
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
    const { context, end } = nodes[i]!;
    if (folded.has(context)) i = Math.min(end, nodes.length) - 1;
  }
  return found;
}

// initiallyFolded returns the contexts of the inner nodes from a depth on, except the ancestors of relevant nodes.
// Unlike indexes, contexts do not change when the tree grows.
export function initiallyFolded(nodes: Node[], relevant: Iterable<number>, depth: number): Set<string> {
  const folded = new Set(nodes.filter((n) => n.depth >= depth && n.end > n.index + 1).map((n) => n.context));
  for (const index of relevant) {
    for (let above = nodes[nodes[index]?.parent ?? -1]; above; above = nodes[above.parent])
      folded.delete(above.context);
  }
  return folded;
}
