package io.github.sibyltrace.android.weaver;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.InsnList;
import org.objectweb.asm.tree.JumpInsnNode;
import org.objectweb.asm.tree.LabelNode;
import org.objectweb.asm.tree.LdcInsnNode;
import org.objectweb.asm.tree.LookupSwitchInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.TableSwitchInsnNode;
import org.objectweb.asm.tree.TryCatchBlockNode;

/**
 * Checks how many monitors a method holds. Android's runtime compiles a method only if each instruction is reached with
 * the same number on all ways, and refuses a class where an exception could leave a monitor locked. The JVM accepts both.
 */
final class Locks {
  private final MethodNode method;
  private final int[] depths; // of monitors before each instruction; -1: not reached
  private final Deque<Integer> pending = new ArrayDeque<>();
  private boolean differ;
  private boolean leave;

  private Locks(MethodNode method) {
    this.method = method;
    depths = new int[method.instructions.size()];
    Arrays.fill(depths, -1);
  }

  /** Returns what Android's runtime would object to, null if nothing. */
  static String objection(MethodNode method) {
    boolean locks = false;
    for (AbstractInsnNode n : method.instructions) {
      locks |= n.getOpcode() == Opcodes.MONITORENTER;
    }
    if (!locks) {
      return null;
    }
    Locks l = new Locks(method);
    l.follow();
    return l.differ ? "monitors differ between ways to an instruction" : l.leave ? "an exception leaves a monitor locked" : null;
  }

  private void follow() {
    reach(0, 0);
    while (!pending.isEmpty()) {
      int i = pending.poll();
      AbstractInsnNode n = method.instructions.get(i);
      int op = n.getOpcode();
      int after = depths[i] + (op == Opcodes.MONITORENTER ? 1 : op == Opcodes.MONITOREXIT ? -1 : 0);
      if (mayThrow(n)) {
        reachHandlers(i);
      }
      for (LabelNode to : targets(n)) {
        reach(method.instructions.indexOf(to), after);
      }
      if (!endsHere(op) && i + 1 < depths.length) {
        reach(i + 1, after);
      }
    }
  }

  private void reach(int to, int depth) {
    if (depths[to] == -1) {
      depths[to] = depth;
      pending.add(to);
    } else if (depths[to] != depth) {
      differ = true;
    }
  }

  private void reachHandlers(int i) {
    InsnList all = method.instructions;
    for (TryCatchBlockNode t : method.tryCatchBlocks) {
      if (all.indexOf(t.start) <= i && i < all.indexOf(t.end)) {
        reach(all.indexOf(t.handler), depths[i]);
        if (t.type == null) {
          return; // catches all
        }
      }
    }
    leave |= depths[i] > 0;
  }

  private static List<LabelNode> targets(AbstractInsnNode n) {
    List<LabelNode> to = new ArrayList<>();
    if (n instanceof JumpInsnNode) {
      to.add(((JumpInsnNode) n).label);
    } else if (n instanceof TableSwitchInsnNode) {
      to.add(((TableSwitchInsnNode) n).dflt);
      to.addAll(((TableSwitchInsnNode) n).labels);
    } else if (n instanceof LookupSwitchInsnNode) {
      to.add(((LookupSwitchInsnNode) n).dflt);
      to.addAll(((LookupSwitchInsnNode) n).labels);
    }
    return to;
  }

  private static boolean endsHere(int op) {
    boolean jumps = op == Opcodes.GOTO || op == Opcodes.TABLESWITCH || op == Opcodes.LOOKUPSWITCH;
    return jumps || op == Opcodes.ATHROW || op >= Opcodes.IRETURN && op <= Opcodes.RETURN;
  }

  /** Reports whether an instruction may throw: MONITOREXIT does not, as Android's verifier has it, or no code could unlock. */
  private static boolean mayThrow(AbstractInsnNode n) {
    int op = n.getOpcode();
    switch (n.getType()) {
      case AbstractInsnNode.METHOD_INSN:
      case AbstractInsnNode.FIELD_INSN:
      case AbstractInsnNode.INVOKE_DYNAMIC_INSN:
      case AbstractInsnNode.MULTIANEWARRAY_INSN:
      case AbstractInsnNode.TYPE_INSN:
        return true;
      case AbstractInsnNode.LDC_INSN:
        return !(((LdcInsnNode) n).cst instanceof Number);
      default:
        boolean divides = op == Opcodes.IDIV || op == Opcodes.LDIV || op == Opcodes.IREM || op == Opcodes.LREM;
        boolean ofArray = op >= Opcodes.IALOAD && op <= Opcodes.SALOAD || op >= Opcodes.IASTORE && op <= Opcodes.SASTORE || op == Opcodes.ARRAYLENGTH || op == Opcodes.NEWARRAY;
        return divides || ofArray || op == Opcodes.ATHROW || op == Opcodes.MONITORENTER;
    }
  }
}
