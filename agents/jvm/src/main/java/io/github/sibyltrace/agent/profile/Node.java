package io.github.sibyltrace.agent.profile;

/**
 * A method in a calling context of one thread, with its statistics. Only that thread changes a node; others read it at
 * any time. All fields that describe the tree are final except for the first child, so that a reader sees nodes
 * completely or not at all.
 */
final class Node {
  final MethodProbe method; // null: the root
  final Node parent;
  private final Node next; // sibling
  private Node first; // child
  private Node recent; // child that was entered last

  long calls;
  long own; // ns outside of the children
  long outermost; // ns of calls that are not within another call of the method

  Node(MethodProbe method, Node parent, Node next) {
    this.method = method;
    this.parent = parent;
    this.next = next;
  }

  /** Returns the child for a method, null if there is none. */
  Node find(MethodProbe of) {
    Node n = recent;
    if (n != null && n.method == of) {
      return n;
    }
    for (n = first; n != null; n = n.next) {
      if (n.method == of) {
        recent = n;
        return n;
      }
    }
    return null;
  }

  Node add(MethodProbe of) {
    first = new Node(of, this, first);
    recent = first;
    return first;
  }

  Node firstChild() {
    return first;
  }

  Node sibling() {
    return next;
  }
}
