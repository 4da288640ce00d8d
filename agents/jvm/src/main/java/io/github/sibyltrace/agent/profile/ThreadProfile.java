package io.github.sibyltrace.agent.profile;

import io.github.sibyltrace.agent.bridge.Activation;
import java.util.ArrayDeque;
import java.util.Arrays;

/** The calls of one thread. Only that thread calls {@link #enter}. */
final class ThreadProfile {
  // Beyond these limits calls are counted below the root, whatever their callers: counts stay exact, only contexts are lost.
  private static final int MAX_NODES = 50_000;
  private static final int MAX_DEPTH = 512;

  final Thread thread;
  final Node root = new Node(null, null, null);
  private int nodes;
  private Frame[] frames = new Frame[16];
  private int depth; // of the frame to enter next
  private int[] active = new int[64]; // calls of each method that have not returned

  ThreadProfile(Thread thread) {
    this.thread = thread;
  }

  Activation enter(MethodProbe method) {
    if (depth == frames.length) {
      frames = Arrays.copyOf(frames, 2 * depth);
    }
    Frame f = frames[depth];
    if (f == null) {
      f = frames[depth] = new Frame(depth);
    }
    f.node = node(depth == 0 ? root : frames[depth - 1].node, method);
    f.node.calls++;
    f.children = 0;
    if (method.number >= active.length) {
      active = Arrays.copyOf(active, Math.max(2 * active.length, method.number + 1));
    }
    active[method.number]++;
    depth++;
    f.start = System.nanoTime();
    return f;
  }

  private Node node(Node parent, MethodProbe method) {
    Node n = depth > MAX_DEPTH ? null : parent.find(method);
    if (n != null) {
      return n;
    }
    if (nodes < MAX_NODES && depth <= MAX_DEPTH) {
      nodes++;
      return parent.add(method);
    }
    n = root.find(method);
    return n != null ? n : root.add(method); // at most one for each method
  }

  /** Adds the calls of another thread, which has ended. */
  void merge(ThreadProfile other) {
    ArrayDeque<Node> from = new ArrayDeque<>();
    ArrayDeque<Node> into = new ArrayDeque<>();
    from.push(other.root);
    into.push(root);
    while (!from.isEmpty()) {
      Node target = into.pop();
      for (Node n = from.pop().firstChild(); n != null; n = n.sibling()) {
        Node m = node(target, n.method);
        m.calls += n.calls;
        m.own += n.own;
        m.outermost += n.outermost;
        from.push(n);
        into.push(m);
      }
    }
  }

  /** A call that has not returned. The object is reused by the next call at the same depth. */
  private final class Frame extends Activation {
    private final int at;
    private Node node;
    private long start;
    private long children; // ns

    Frame(int at) {
      this.at = at;
    }

    @Override
    public void exit(Throwable thrown) {
      long elapsed = System.nanoTime() - start;
      node.own += elapsed - children;
      if (--active[node.method.number] == 0) {
        node.outermost += elapsed;
      }
      depth = at;
      if (at > 0) {
        frames[at - 1].children += elapsed;
      }
    }
  }
}
