package io.github.sibyltrace.agent.classify;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Log-odds that a class is the application's own, by value of each feature: the lines of weights.txt. */
final class Model {
  private double bias;
  private double band;
  private final Map<String, Double> weights = new HashMap<>();

  Model(List<String> lines) {
    for (String line : lines) {
      if (line.isEmpty() || line.startsWith("#")) {
        continue;
      }
      String[] parts = line.split("\t", 2);
      double weight = Double.parseDouble(parts[0]);
      if (parts[1].equals("bias")) {
        bias = weight;
      } else if (parts[1].equals("band")) {
        band = weight;
      } else {
        weights.put(parts[1], weight);
      }
    }
  }

  /** Adds up the weights of features, in their order. */
  double logOdds(List<String> features) {
    double sum = bias;
    for (String f : features) {
      sum += weights.getOrDefault(f, 0.0);
    }
    return sum;
  }

  /** Reports whether people should decide instead. */
  boolean isUnsure(double logOdds) {
    return Math.abs(logOdds) < band;
  }
}
