// Calling-context trees: which nodes are shown.
import type { Schemas } from "../api/client.ts";

type Node = Schemas["TreeNode"];

// visible returns the indexes of the nodes to show, in pre-order. Without a filter those are the nodes that are not below a folded one; with
// one, those that pass it, and the nodes above them.
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

// foldedAtFirst folds what lies deeper than a few levels, but for the ways to the nodes that matter. It returns contexts, which stay what they are
// when the tree grows.
export function initiallyFolded(nodes: Node[], matter: Iterable<number>, depth: number): Set<string> {
  const folded = new Set(nodes.filter((n) => n.depth >= depth && n.end > n.index + 1).map((n) => n.context));
  for (const index of matter) {
    for (let above = nodes[nodes[index]?.parent ?? -1]; above; above = nodes[above.parent])
      folded.delete(above.context);
  }
  return folded;
}
