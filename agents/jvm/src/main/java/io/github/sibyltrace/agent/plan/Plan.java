package io.github.sibyltrace.agent.plan;

import com.grack.nanojson.JsonArray;
import com.grack.nanojson.JsonObject;
import com.grack.nanojson.JsonParser;
import com.grack.nanojson.JsonParserException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;

/** A plan: the tracepoints to enable, for each share of the requests. Plans are immutable. */
public final class Plan {
  private static final long MAX_VERSION = (1L << 53) - 1;

  /** Selects requests by their entry span. Empty texts match all. */
  static final class Filter {
    final String service;
    final String operation;
    final String spanKind;
    final TreeMap<String, String> attributes = new TreeMap<>();

    Filter(JsonObject o) throws InvalidPlanException {
      service = text(o, "service");
      operation = text(o, "operation");
      spanKind = text(o, "span_kind");
      JsonObject wanted = o.getObject("attributes");
      if (wanted != null) {
        for (String key : wanted.keySet()) {
          attributes.put(key, text(wanted, key));
        }
      }
    }

    private boolean matches(Entry e) {
      if (!matches(service, e.service) || !matches(operation, e.operation) || !matches(spanKind, e.spanKind)) {
        return false;
      }
      for (Map.Entry<String, String> a : attributes.entrySet()) {
        if (!a.getValue().equals(e.attribute.apply(a.getKey()))) {
          return false;
        }
      }
      return true;
    }

    private static boolean matches(String want, String got) {
      return want.isEmpty() || want.equals(got);
    }
  }

  /** The span with which a request enters the process, at its start. */
  public static final class Entry {
    final String service;
    final String operation;
    final String spanKind; // in lower case
    final Function<String, String> attribute; // returns null if there is none

    public Entry(String service, String operation, String spanKind, Function<String, String> attribute) {
      this.service = service;
      this.operation = operation;
      this.spanKind = spanKind;
      this.attribute = attribute;
    }
  }

  /** A tracepoint that an arm enables. */
  public static final class Enabled {
    public final double rate; // share of the requests, in (0, 1]
    public final long filter; // the bit of the filter that requests must match; 0: none

    Enabled(double rate, int filter) {
      this.rate = rate;
      this.filter = filter == 0 ? 0 : 1L << filter - 1;
    }
  }

  /** A random share of the requests. */
  public static final class Arm {
    public final String name;
    public final Map<String, Enabled> enabled; // by ID
    final double share;

    Arm(String name, double share, Map<String, Enabled> enabled) {
      this.name = name;
      this.share = share;
      this.enabled = Collections.unmodifiableMap(enabled);
    }
  }

  public final long version;
  public final String hash;
  public final int leaseSeconds;
  public final List<Arm> arms;
  private final List<Filter> filters = new ArrayList<>();

  /** Decodes a plan. The hash covers all fields, so that a plan with a matching hash is as Sibyl sent it. */
  public static Plan decode(String json) throws InvalidPlanException {
    try {
      return new Plan(JsonParser.object().from(json));
    } catch (JsonParserException | ClassCastException e) {
      throw new InvalidPlanException("not a plan in JSON: " + e.getMessage());
    }
  }

  private Plan(JsonObject o) throws InvalidPlanException {
    int protocol = o.getInt("protocol");
    check(protocol == Limits.VERSION, "protocol: " + protocol + " is not version 1 of the tracepoint protocol");
    version = o.getLong("version", -1);
    check(version >= 0 && version <= MAX_VERSION, "version: " + version);
    hash = text(o, "hash");
    leaseSeconds = o.getInt("lease_seconds");
    check(leaseSeconds >= 1 && leaseSeconds <= Limits.LEASE, "lease_seconds: " + leaseSeconds);
    Encoder e = new Encoder("sibyl plan 1");
    e.integer(version);
    e.integer(leaseSeconds);
    decodeFilters(list(o, "filters", Limits.FILTERS), e);
    arms = decodeArms(list(o, "arms", Limits.ARMS), e);
    check(e.sum().equals(hash), "hash: does not match the content");
  }

  private void decodeFilters(JsonArray list, Encoder e) throws InvalidPlanException {
    e.integer(list.size());
    for (Object o : list) {
      Filter f = new Filter((JsonObject) o);
      filters.add(f);
      e.string(f.service);
      e.string(f.operation);
      e.string(f.spanKind);
      e.integer(f.attributes.size());
      f.attributes.forEach(
          (key, value) -> {
            e.string(key);
            e.string(value);
          });
    }
  }

  private List<Arm> decodeArms(JsonArray list, Encoder e) throws InvalidPlanException {
    List<Arm> all = new ArrayList<>();
    e.integer(list.size());
    for (Object o : list) {
      JsonObject a = (JsonObject) o;
      String name = text(a, "name");
      double share = a.getDouble("share");
      check(share >= 0 && share <= 1, "arms: the share of " + name + " is " + share);
      e.string(name);
      e.decimal(share);
      all.add(new Arm(name, share, decodeEnabled(list(a, "tracepoints", Limits.ENABLED), e)));
    }
    return Collections.unmodifiableList(all);
  }

  private Map<String, Enabled> decodeEnabled(JsonArray list, Encoder e) throws InvalidPlanException {
    Map<String, Enabled> enabled = new HashMap<>();
    e.integer(list.size());
    for (Object o : list) {
      JsonObject t = (JsonObject) o;
      String id = text(t, "id");
      double rate = t.getDouble("rate");
      int filter = t.getInt("filter");
      check(rate > 0 && rate <= 1, "rate: " + rate + " is not in (0, 1]");
      check(filter >= 0 && filter <= filters.size(), "filter: " + filter + ": the plan has " + filters.size());
      enabled.put(id, new Enabled(rate, filter));
      e.string(id);
      e.decimal(rate);
      e.integer(filter);
    }
    return enabled;
  }

  private static JsonArray list(JsonObject o, String key, int limit) throws InvalidPlanException {
    JsonArray list = o.getArray(key, new JsonArray());
    check(list.size() <= limit, key + ": " + list.size() + " entries exceed the limit of " + limit);
    return list;
  }

  private static String text(JsonObject o, String key) throws InvalidPlanException {
    String s = o.getString(key, "");
    check(s.length() <= Limits.TEXT, key + ": longer than " + Limits.TEXT);
    return s;
  }

  private static void check(boolean valid, String otherwise) throws InvalidPlanException {
    if (!valid) {
      throw new InvalidPlanException(otherwise);
    }
  }

  /** Returns the arm of a request, null if it has none. */
  Arm armOf(long randomness) {
    double x = Randomness.unit(randomness);
    double sum = 0;
    for (Arm a : arms) {
      sum += a.share;
      if (x < sum) {
        return a;
      }
    }
    return null;
  }

  Arm arm(String name) {
    for (Arm a : arms) {
      if (a.name.equals(name)) {
        return a;
      }
    }
    return null;
  }

  /** Returns the bits of the filters that an entry span matches. */
  long match(Entry entry) {
    long bits = 0;
    for (int i = 0; i < filters.size(); i++) {
      bits |= filters.get(i).matches(entry) ? 1L << i : 0;
    }
    return bits;
  }
}
