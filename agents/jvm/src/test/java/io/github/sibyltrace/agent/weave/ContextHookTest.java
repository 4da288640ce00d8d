package io.github.sibyltrace.agent.weave;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.sibyltrace.agent.Log;
import io.github.sibyltrace.agent.TestAgent;
import io.github.sibyltrace.agent.threads.ContextTransformer;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.ContextKey;
import io.opentelemetry.context.Scope;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ContextHookTest {
  private static final ContextKey<String> KEY = ContextKey.named("name");

  @Test
  void tellsEveryChangeOfTheContext() throws Exception {
    Context a = Context.root().with(KEY, "a");
    Context b = Context.root().with(KEY, "b");
    a.makeCurrent().close(); // the classes are loaded
    List<String> told = new ArrayList<>();
    ContextTransformer.start(c -> told.add(c == null ? "none" : ((Context) c).get(KEY)), TestAgent.instrumentation(), new Log(System.err, Log.Level.WARN));
    Scope outer = a.makeCurrent();
    assertEquals(List.of("a"), told);
    Scope inner = b.makeCurrent();
    Scope same = b.makeCurrent();
    same.close();
    outer.close(); // out of order: without effect
    assertEquals(List.of("a", "b"), told);
    inner.close();
    assertEquals(List.of("a", "b", "a"), told);
    outer.close();
    assertEquals(List.of("a", "b", "a", "none"), told);
  }

  @Test
  void appliesToTheStorageOfAnyOpenTelemetry() {
    assertTrue(ContextHook.applies("io.opentelemetry.context.ThreadLocalContextStorage"));
    assertTrue(ContextHook.applies("io.opentelemetry.javaagent.shaded.io.opentelemetry.context.ThreadLocalContextStorage$ScopeImpl"));
    assertFalse(ContextHook.applies("io.opentelemetry.context.ThreadLocalContextStorages"));
    assertFalse(ContextHook.applies("xio.opentelemetry.context.ThreadLocalContextStorage"));
    assertFalse(ContextHook.applies("java.lang.ThreadLocal"));
  }
}
