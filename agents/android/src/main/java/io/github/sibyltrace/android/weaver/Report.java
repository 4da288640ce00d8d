package io.github.sibyltrace.android.weaver;

import java.util.ArrayList;
import java.util.List;

/** Counts what was woven, and lists what was not. */
final class Report {
  final List<String> decisions = new ArrayList<>();
  final List<String> refusals = new ArrayList<>();
  int classes;
  int changed; // classes
  int again; // classes that had been woven before
  int methods;
  int calls;

  void refuse(String place, String reason) {
    refusals.add(place + ": " + reason);
  }

  @Override
  public String toString() {
    String s = String.format("%d methods and %d calls woven in %d of %d classes, %d refusals", methods, calls, changed, classes, refusals.size());
    return again == 0 ? s : s + ", " + again + " classes had been woven before";
  }
}
